// The object store of the tests: versitygw's S3 server over a folder, with the default settings of `versitygw posix`.
//
//	store ADDRESS FOLDER
//
// ROOT_ACCESS_KEY and ROOT_SECRET_KEY in the environment are the credentials.
package main

import (
	"log"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
)

func main() {
	address, folder := os.Args[1], os.Args[2]
	access, secret := os.Getenv("ROOT_ACCESS_KEY"), os.Getenv("ROOT_SECRET_KEY")
	if err := (meta.XattrMeta{}).Test(folder); err != nil {
		log.Fatal(err)
	}
	utils.SetBucketNameValidationStrict(true)
	settings := posix.PosixOpts{Concurrency: 5000, CopyObjectThreshold: 5 << 30}
	files, err := posix.New(folder, meta.XattrMeta{}, settings)
	if err != nil {
		log.Fatal(err)
	}
	server, err := s3api.New(
		files,
		middlewares.RootUserConfig{Access: access, Secret: secret},
		"us-east-1",
		auth.NewIAMServiceSingle(auth.Account{Access: access, Secret: secret, Role: auth.RoleAdmin}),
		nil, nil, nil, nil,
		s3api.WithConcurrencyLimiter(250000, 100000),
		s3api.WithMpMaxParts(10000),
		s3api.WithQuiet(),
	)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ServeMultiPort([]string{address}))
}
