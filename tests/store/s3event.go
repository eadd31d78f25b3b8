package s3event

import "errors"

var errLeftOut = errors.New("left out of this build")

func InitKafkaEventService(...any) (S3EventSender, error)    { return nil, errLeftOut }
func InitNatsEventService(...any) (S3EventSender, error)     { return nil, errLeftOut }
func InitRabbitmqEventService(...any) (S3EventSender, error) { return nil, errLeftOut }
func genSequencer() string                                   { return "" }
