/*
 * SummingWriter: appends to a file on a libuv thread and keeps the SHA-256 of what it appended. Hashing takes half a
 * second a GiB. It runs on the worker if the event loop has other calls to decrypt, else on the calling thread during
 * the write.
 */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "openssl_host.h"
#include "values.h"

#define DIGESTING(F)   \
  F(EVP_MD_CTX_new)    \
  F(EVP_MD_CTX_free)   \
  F(EVP_sha256)        \
  F(EVP_DigestInit_ex) \
  F(EVP_DigestUpdate)  \
  F(EVP_DigestFinal_ex)
CALLS_OF_OPENSSL(DIGESTING, can_digest)

/* PIECES: as many as one system call gets. */
enum { SHA256_BYTES = 32, PIECES = 256 };
enum sum { NO_SUM = 0, SUM_HERE = 1, SUM_ON_THREAD = 2 };

struct summing_writer {
  napi_ref self; /* keeps the object alive while a write runs */
  EVP_MD_CTX *digest;
  int fd;
  bool writing;
  bool failed;
};

struct write_job {
  napi_async_work work;
  napi_deferred deferred;
  napi_ref array; /* keeps the pieces alive until the thread is done with them */
  struct summing_writer *writer;
  enum sum sum;
  int result;
  uint32_t count;
  struct iovec pieces[];
};

static void finalize(napi_env env, void *data, void *hint) {
  struct summing_writer *writer = data;
  (void)hint;
  napi_delete_reference(env, writer->self);
  EVP_MD_CTX_free(writer->digest);
  free(writer);
}

static bool begin(EVP_MD_CTX *digest) { return EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1; }

static napi_value construct(napi_env env, napi_callback_info info) {
  napi_value fd, self;
  size_t count = 1;
  napi_get_cb_info(env, info, &count, &fd, &self, NULL);
  if (!can_digest()) {
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
  napi_wrap(env, self, writer, finalize, NULL, &writer->self);
  return self;
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
  napi_reference_unref(env, job->writer->self, NULL);
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
  napi_value arguments[2], promise = NULL, name = NULL;
  napi_deferred deferred;
  struct summing_writer *writer = get_object(env, info, 2, arguments);
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
  napi_reference_ref(env, writer->self, NULL);
  napi_create_reference(env, arguments[0], 1, &job->array);
  napi_create_string_utf8(env, "SummingWriter", NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, write_on_thread, finish_write, job, &job->work);
  napi_queue_async_work(env, job->work);
  if (job->sum == SUM_HERE) add_up(job);
  return promise;
}

/* takeSha256(): SHA-256 of all bytes since the last call, as a buffer; undefined while a write runs, or on failure. */
static napi_value take_sha256(napi_env env, napi_callback_info info) {
  napi_value sum = NULL;
  unsigned char bytes[SHA256_BYTES];
  struct summing_writer *writer = get_object(env, info, 0, NULL);
  if (writer == NULL || writer->writing || writer->failed) return NULL;
  if (EVP_DigestFinal_ex(writer->digest, bytes, NULL) != 1 || !begin(writer->digest)) return NULL;
  napi_create_buffer_copy(env, sizeof bytes, bytes, NULL, &sum);
  return sum;
}

napi_value agent_summing_writer_class(napi_env env) {
  const napi_property_descriptor methods[] = {METHOD("write", write_pieces), METHOD("takeSha256", take_sha256)};
  return define_class(env, "SummingWriter", construct, 2, methods);
}
