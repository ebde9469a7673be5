package grant

import (
	"errors"

	"aead.dev/minisign"
)

// SignatureSuffix is how the file of a detached minisign signature is named.
const SignatureSuffix = ".minisig"

// VerifySignature checks a minisign signature over content: legacy or
// prehashed, with its trusted comment. The key is the one line of base64 of a
// minisign public key.
func VerifySignature(publicKey string, content, signature []byte) error {
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(publicKey)); err != nil {
		return errors.New("the public key is no minisign key")
	}
	if !minisign.Verify(key, content, signature) {
		return errors.New("the signature is not of this key over this file")
	}
	return nil
}
