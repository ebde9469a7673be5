//go:build !wasip1

package subprocess

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// message is what the generator of our messages makes.
type message interface {
	MarshalVT() ([]byte, error)
	UnmarshalVT(data []byte) error
}

// codec encodes our own messages with their own code and go-plugin's with
// Google's. On the wire both are ordinary protobuf.
type codec struct{ others encoding.CodecV2 }

// NewCodec returns the codec of both sides.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ours := v.(message)
	if !ours {
		return c.others.Marshal(v)
	}
	b, err := m.MarshalVT()
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ours := v.(message)
	if !ours {
		return c.others.Unmarshal(data, v)
	}
	return m.UnmarshalVT(data.Materialize())
}

func (codec) Name() string { return proto.Name }
