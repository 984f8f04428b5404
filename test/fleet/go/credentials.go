package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// credentialSet is what an agent reads, by the names of its files.
type credentialSet map[string][]byte

var agentFiles = []string{"server.key", "server.pem", "ca.pem", "token"}

// issue makes an authority, two certificates and a token in a directory, as the node side does.
func issue(directory string) (credentialSet, error) {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := template("guest-agent instance " + serial().Text(16))
	root.IsCA, root.BasicConstraintsValid, root.MaxPathLenZero = true, true, true
	root.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, root, root, &authority.PublicKey, authority)
	if err != nil {
		return nil, err
	}
	parent, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	set := credentialSet{
		"ca.pem": encoded("CERTIFICATE", der),
		"token":  []byte(base64.RawURLEncoding.EncodeToString(token) + "\n"),
	}
	for name, usage := range map[string]x509.ExtKeyUsage{
		"server": x509.ExtKeyUsageServerAuth,
		"client": x509.ExtKeyUsageClientAuth,
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		leaf := template("guest-agent " + name)
		leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}
		leaf.DNSNames = []string{"guest-agent", "localhost"}
		leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		der, err := x509.CreateCertificate(rand.Reader, leaf, parent, &key.PublicKey, authority)
		if err != nil {
			return nil, err
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		set[name+".pem"], set[name+".key"] = encoded("CERTIFICATE", der), encoded("PRIVATE KEY", pkcs8)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	for name, content := range set {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// readSet reads what the node side has issued in a directory.
func readSet(directory string) (credentialSet, error) {
	set := credentialSet{}
	for _, name := range agentFiles {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return nil, err
		}
		set[name] = content
	}
	return set, nil
}

// config is the server's side of mutual TLS 1.3.
func (set credentialSet) config(onHandshake func()) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(set["server.pem"], set["server.key"])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(set["ca.pem"]) {
		return nil, errors.New("ca.pem has no certificate")
	}
	return &tls.Config{
		Certificates:     []tls.Certificate{pair},
		ClientCAs:        pool,
		ClientAuth:       tls.RequireAndVerifyClientCert,
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{"h2"},
		VerifyConnection: func(tls.ConnectionState) error { onHandshake(); return nil },
	}, nil
}

func (set credentialSet) token() string { return strings.TrimSpace(string(set["token"])) }

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}
}

func serial() *big.Int {
	number, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	return number
}

func encoded(kind string, bytes []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
}
