/*
 * SummingWriter: appends to a file on a libuv thread and keeps the SHA-256 of what it appended. Hashing takes half a
 * second a GiB: it runs on the worker if the event loop has other calls to decrypt, else on the calling thread during the
 * write.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "values.h"

/* Node's own OpenSSL (see openssl.c), from openssl/evp.h. */
#define HOST __attribute__((weak))

typedef struct evp_md_ctx_st EVP_MD_CTX;
typedef struct evp_md_st EVP_MD;

HOST EVP_MD_CTX *EVP_MD_CTX_new(void);
HOST void EVP_MD_CTX_free(EVP_MD_CTX *digest);
HOST const EVP_MD *EVP_sha256(void);
HOST int EVP_DigestInit_ex(EVP_MD_CTX *digest, const EVP_MD *type, void *engine);
HOST int EVP_DigestUpdate(EVP_MD_CTX *digest, const void *bytes, size_t length);
HOST int EVP_DigestFinal_ex(EVP_MD_CTX *digest, unsigned char *sum, unsigned int *length);

/* PIECES: as many as one system call gets. */
enum { SHA256_BYTES = 32, PIECES = 256 };
enum sum { NO_SUM = 0, SUM_HERE = 1, SUM_ON_THREAD = 2 };

struct summing_writer {
  EVP_MD_CTX *digest;
  int fd;
  bool writing;
  bool failed;
};

struct write_job {
  napi_async_work work;
  napi_deferred deferred;
  /* Keep the writer and the pieces alive until the thread is done with them. */
  napi_ref self, array;
  struct summing_writer *writer;
  enum sum sum;
  int result;
  uint32_t count;
  struct iovec pieces[];
};

static void finalize(napi_env env, void *data, void *hint) {
  struct summing_writer *writer = data;
  (void)env;
  (void)hint;
  EVP_MD_CTX_free(writer->digest);
  free(writer);
}

static bool begin(EVP_MD_CTX *digest) { return EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1; }

static napi_value construct(napi_env env, napi_callback_info info) {
  napi_value fd, self;
  size_t count = 1;
  napi_get_cb_info(env, info, &count, &fd, &self, NULL);
  if (EVP_MD_CTX_new == NULL || EVP_MD_CTX_free == NULL || EVP_sha256 == NULL || EVP_DigestInit_ex == NULL ||
      EVP_DigestUpdate == NULL || EVP_DigestFinal_ex == NULL) {
    napi_throw_error(env, "ENOSYS", "this Node does not export its OpenSSL's digests");
    return NULL;
  }
  struct summing_writer *writer = calloc(1, sizeof *writer);
  EVP_MD_CTX *digest = EVP_MD_CTX_new();
  if (writer == NULL || digest == NULL || !begin(digest)) {
    EVP_MD_CTX_free(digest);
    free(writer);
    napi_throw_error(env, "ENOMEM", "no SHA-256 can be computed");
    return NULL;
  }
  writer->digest = digest;
  writer->fd = to_int(env, fd);
  napi_wrap(env, self, writer, finalize, NULL, NULL);
  return self;
}

static struct summing_writer *writer_of(napi_env env, napi_callback_info info, napi_value *self, size_t count,
                                        napi_value *arguments) {
  void *writer = NULL;
  napi_get_cb_info(env, info, &count, arguments, self, NULL);
  napi_unwrap(env, *self, &writer);
  return writer;
}

/* Writes the pieces but for the first `skip` bytes of the first one. */
static ssize_t write_some(int fd, const struct iovec *pieces, uint32_t count, size_t skip) {
  struct iovec some[PIECES];
  int used = count < PIECES ? (int)count : PIECES;
  memcpy(some, pieces, (size_t)used * sizeof *some);
  some[0].iov_base = (char *)some[0].iov_base + skip;
  some[0].iov_len -= skip;
  return writev(fd, some, used);
}

/* Before it fails with ENOSPC, writev(2) may take a part. */
static int write_all(int fd, const struct iovec *pieces, uint32_t count) {
  size_t skip = 0;
  for (uint32_t at = 0; at < count;) {
    if (skip == pieces[at].iov_len) {
      at++;
      skip = 0;
      continue;
    }
    ssize_t written = write_some(fd, pieces + at, count - at, skip);
    if (written < 0 && errno != EINTR) return -errno;
    if (written == 0) return -EIO;
    if (written > 0) skip += (size_t)written;
    for (; at < count && skip > pieces[at].iov_len; at++) skip -= pieces[at].iov_len;
  }
  return 0;
}

static void add_up(const struct write_job *job) {
  for (uint32_t at = 0; at < job->count; at++) {
    const struct iovec *piece = &job->pieces[at];
    if (EVP_DigestUpdate(job->writer->digest, piece->iov_base, piece->iov_len) != 1) job->writer->failed = true;
  }
}

static void write_on_thread(napi_env env, void *data) {
  (void)env;
  struct write_job *job = data;
  if (job->sum == SUM_ON_THREAD) add_up(job);
  job->result = write_all(job->writer->fd, job->pieces, job->count);
}

static void finish_write(napi_env env, napi_status status, void *data) {
  struct write_job *job = data;
  job->writer->writing = false;
  napi_delete_reference(env, job->self);
  napi_delete_reference(env, job->array);
  napi_resolve_deferred(env, job->deferred, from_int(env, status == napi_ok ? job->result : -ECANCELED));
  napi_delete_async_work(env, job->work);
  free(job);
}

/* NULL: it is not an array of buffers, or there is no memory. */
static struct write_job *new_job(napi_env env, napi_value array) {
  uint32_t count = 0;
  if (napi_get_array_length(env, array, &count) != napi_ok) return NULL;
  struct write_job *job = calloc(1, sizeof *job + count * sizeof *job->pieces);
  if (job == NULL) return NULL;
  job->count = count;
  for (uint32_t at = 0; at < count; at++) {
    napi_value piece;
    struct iovec *entry = &job->pieces[at];
    if (napi_get_element(env, array, at, &piece) == napi_ok &&
        napi_get_buffer_info(env, piece, &entry->iov_base, &entry->iov_len) == napi_ok)
      continue;
    free(job);
    return NULL;
  }
  return job;
}

/* write(pieces, sum): a promise of 0 or a negative errno. One at a time: -EBUSY before the last is done. */
static napi_value write_pieces(napi_env env, napi_callback_info info) {
  napi_value self, arguments[2], promise = NULL, name = NULL;
  napi_deferred deferred;
  struct summing_writer *writer = writer_of(env, info, &self, 2, arguments);
  napi_create_promise(env, &deferred, &promise);
  struct write_job *job = writer == NULL || writer->writing ? NULL : new_job(env, arguments[0]);
  if (job == NULL) {
    napi_resolve_deferred(env, deferred, from_int(env, writer != NULL && writer->writing ? -EBUSY : -EINVAL));
    return promise;
  }
  writer->writing = true;
  job->deferred = deferred;
  job->writer = writer;
  job->sum = (enum sum)to_int(env, arguments[1]);
  napi_create_reference(env, self, 1, &job->self);
  napi_create_reference(env, arguments[0], 1, &job->array);
  napi_create_string_utf8(env, "SummingWriter", NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, write_on_thread, finish_write, job, &job->work);
  napi_queue_async_work(env, job->work);
  if (job->sum == SUM_HERE) add_up(job);
  return promise;
}

/* takeSha256(): SHA-256 of all bytes since the last call, as a buffer; undefined while a write runs, or on failure. */
static napi_value take_sha256(napi_env env, napi_callback_info info) {
  napi_value self, sum = NULL;
  unsigned char bytes[SHA256_BYTES];
  struct summing_writer *writer = writer_of(env, info, &self, 0, NULL);
  if (writer == NULL || writer->writing || writer->failed) return NULL;
  if (EVP_DigestFinal_ex(writer->digest, bytes, NULL) != 1 || !begin(writer->digest)) return NULL;
  napi_create_buffer_copy(env, sizeof bytes, bytes, NULL, &sum);
  return sum;
}

napi_value agent_summing_writer_class(napi_env env) {
  static const napi_property_descriptor METHODS[] = {
      {.utf8name = "write", .method = write_pieces, .attributes = napi_default_method},
      {.utf8name = "takeSha256", .method = take_sha256, .attributes = napi_default_method},
  };
  napi_value class = NULL;
  napi_define_class(env, "SummingWriter", NAPI_AUTO_LENGTH, construct, NULL, sizeof METHODS / sizeof *METHODS, METHODS,
                    &class);
  return class;
}
