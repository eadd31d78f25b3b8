// Package s3 has the types of the client's requests and answers, which scripts/store_server adds below.
package s3

import (
	"context"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/document"
	"github.com/aws/smithy-go/middleware"
)

type noSmithyDocumentSerde = document.NoSerde

// SelectObjectContentEventStream is a part of an answer that the server never gives.
type SelectObjectContentEventStream struct{}

var (
	_ context.Context
	_ io.Reader
	_ time.Time
	_ types.Bucket
	_ middleware.Metadata
)

