package server

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
)

// ServeHttps listens on a port of 127.0.0.1, prints it, and serves files for ever. It uses HTTP/1.1, the same TLS as
// Serve, and nothing but the standard library. Files are copied as they come, in place, without checksum or fsync.
func ServeHttps(folder, token string) error {
	secure, err := tlsConfig(folder)
	if err != nil {
		return err
	}
	secure.NextProtos = []string{"http/1.1"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: files{token}, TLSConfig: secure, ErrorLog: log.New(io.Discard, "", 0)}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return server.ServeTLS(listener, "", "")
}

// files answers GET and PUT of any path, and HEAD of "/" as the smallest question.
type files struct{ token string }

func (f files) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	given := request.Header.Get("svc-instance-token")
	if subtle.ConstantTimeCompare([]byte(given), []byte(f.token)) != 1 {
		http.Error(writer, "the instance token is missing or wrong", http.StatusUnauthorized)
		return
	}
	var err error
	switch request.Method {
	case http.MethodHead:
	case http.MethodGet:
		err = sendFile(writer, request.URL.Path)
	case http.MethodPut:
		err = receiveFile(request.Body, request.URL.Path)
	default:
		writer.WriteHeader(http.StatusMethodNotAllowed)
	}
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
	}
}

func sendFile(writer http.ResponseWriter, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	writer.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	writer.Header().Set("Content-Type", "application/octet-stream")
	_, err = io.Copy(writer, file)
	return err
}

func receiveFile(body io.Reader, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, body); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
