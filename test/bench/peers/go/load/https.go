package load

import (
	"fmt"
	"io"
	"net/http"
)

// httpsTarget moves files over HTTP/1.1; each call under way has a connection of its own, which is used again.
type httpsTarget struct {
	unsupported
	client *http.Client
	origin string
	token  string
}

// As many idle connections are kept as the bench ever uses at once.
const idleConnections = 128

func dialHttps(address, folder, token string) (target, error) {
	secure, err := clientTls(folder)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:     secure,
		MaxIdleConnsPerHost: idleConnections,
		DisableCompression:  true,
		ReadBufferSize:      httpBufferBytes,
		WriteBufferSize:     httpBufferBytes,
	}
	return &httpsTarget{client: &http.Client{Transport: transport}, origin: "https://" + address, token: token}, nil
}

// Large enough that the client never holds the server back.
const httpBufferBytes = 256 * 1024

func (t *httpsTarget) close() { t.client.CloseIdleConnections() }

// call sends a request and returns how many bytes its answer has.
func (t *httpsTarget) call(method, path string, body io.Reader, length int64) (int64, error) {
	request, err := http.NewRequest(method, t.origin+path, body)
	if err != nil {
		return 0, err
	}
	request.ContentLength = length
	request.Header.Set("svc-instance-token", t.token)
	response, err := t.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	count, err := io.CopyBuffer(onlyWriter{io.Discard}, response.Body, make([]byte, httpBufferBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return count, err
}

// onlyWriter hides the ReadFrom of io.Discard, which reads 8 KiB at a time.
type onlyWriter struct{ io.Writer }

func (t *httpsTarget) ping() error {
	_, err := t.call(http.MethodHead, "/", nil, 0)
	return err
}

func (t *httpsTarget) readFile(path string) (int64, error) {
	return t.call(http.MethodGet, path, nil, 0)
}

func (t *httpsTarget) writeFile(path string, totalBytes int64, chunkBytes int, _ bool) error {
	_, err := t.call(http.MethodPut, path, &chunks{make([]byte, chunkBytes), totalBytes}, totalBytes)
	return err
}

// chunks gives the same bytes again and again.
type chunks struct {
	chunk []byte
	left  int64
}

func (c *chunks) Read(target []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	count := copy(target, c.chunk[:min(int64(len(c.chunk)), c.left)])
	c.left -= int64(count)
	return count, nil
}
