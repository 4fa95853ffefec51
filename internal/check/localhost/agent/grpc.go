package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	echoService = "unnest.localhost.Echo"
	echoCall    = "/" + echoService + "/Call"
	echoStream  = "/" + echoService + "/Stream"
)

// echoDescription is a service that sends bytes back, in single calls and in a stream.
var echoDescription = grpc.ServiceDesc{
	ServiceName: echoService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		}}},
	Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := new(wrapperspb.BytesValue)
				if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		}}},
}

func serveGRPC(l net.Listener) *service {
	s := grpc.NewServer()
	s.RegisterService(&echoDescription, nil)
	return startService(func() error { return s.Serve(l) }, func() error { s.Stop(); return nil })
}

func (j *job) callGRPC(o CallGRPC) (Called, error) {
	ctx, cancel := context.WithTimeout(j.ctx, j.limit())
	defer cancel()
	c, err := grpc.NewClient("passthrough:///"+o.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return Called{}, err
	}
	defer c.Close()
	var answer Called
	for _, size := range []int{0, 1, o.Large} {
		sent, got := wrapperspb.Bytes(message(uint64(size), size)), new(wrapperspb.BytesValue)
		if err := c.Invoke(ctx, echoCall, sent, got); err != nil {
			return answer, err
		}
		if err := compare(got.Value, sent.Value); err != nil {
			return answer, err
		}
		answer.Calls++
	}
	answer.Messages, err = streamed(ctx, c, o.Stream)
	return answer, err
}

// streamed sends messages in a stream while it receives them, and counts those that come
// back in order.
func streamed(ctx context.Context, c *grpc.ClientConn, count int) (int, error) {
	s, err := c.NewStream(ctx, &echoDescription.Streams[0], echoStream)
	if err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() {
		for i := range count {
			if err := s.SendMsg(wrapperspb.Bytes(message(uint64(i), i))); err != nil {
				sent <- err
				return
			}
		}
		sent <- s.CloseSend()
	}()
	got := 0
	for ; ; got++ {
		m := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
			return got, <-sent
		} else if err != nil {
			return got, err
		}
		if err := compare(m.Value, message(uint64(got), got)); err != nil {
			return got, fmt.Errorf("message %d of the stream: %w", got, err)
		}
	}
}
