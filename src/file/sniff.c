/* What kind of file the first bytes say it is: the three formats we read, the
 * index of a sharded model, and by name the things people hand in by mistake.
 * Suffixes are never looked at.  Knows no more of a format than its first bytes. */
#include <string.h>

#include "base/buf.h"
#include "file/le.h"
#include "file/parts.h"

#define ADVICE_LEGACY                                                                               \
    "re-save it with torch.save(model.state_dict(), FILE) in its default zip format (PyTorch 1.6 "  \
    "or later)"

struct magic {
    size_t at;
    const char *bytes;
    size_t len;
    const char *what;
};

#define MAGIC(at, bytes, what) {at, bytes, sizeof(bytes) - 1, what}

/* Checked in this order, before the looser rule for safetensors. */
static const struct magic foreign[] = {
    MAGIC(0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
          "a legacy PyTorch file (before 1.6, no zip archive): " ADVICE_LEGACY),
    MAGIC(0, "\x80\x02", "a bare pickle stream (legacy PyTorch?), no zip archive: " ADVICE_LEGACY),
    MAGIC(0, "\x80\x03", "a bare pickle stream (legacy PyTorch?), no zip archive: " ADVICE_LEGACY),
    MAGIC(0, "\x80\x04", "a bare pickle stream (legacy PyTorch?), no zip archive: " ADVICE_LEGACY),
    MAGIC(0, "\x80\x05", "a bare pickle stream (legacy PyTorch?), no zip archive: " ADVICE_LEGACY),
    MAGIC(0, "FUGG", "a GGUF with its magic in big-endian order, which is not supported"),
    MAGIC(0, "lmgg", "a legacy ggml file: convert the original model to GGUF"),
    MAGIC(0, "fmgg", "a legacy ggmf file: convert the original model to GGUF"),
    MAGIC(0, "tjgg", "a legacy ggjt file: convert the original model to GGUF"),
    MAGIC(0, "algg", "a legacy ggla adapter, not a model"),
    MAGIC(0, "version https://git-lfs", "a git-lfs pointer, not the file itself: run git lfs pull"),
    MAGIC(0, "<!DOCTYPE", "an HTML page, not a model (a download that failed?)"),
    MAGIC(0, "<!doctype", "an HTML page, not a model (a download that failed?)"),
    MAGIC(0, "<html", "an HTML page, not a model (a download that failed?)"),
    MAGIC(0, "<?xml", "an XML text, not a model (a download that failed?)"),
    MAGIC(0, "\x1f\x8b", "a gzip file: unpack it first"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    MAGIC(0, "\xfd" "7zXZ", "an xz file: unpack it first"),
    MAGIC(0, "BZh", "a bzip2 file: unpack it first"),
    MAGIC(0, "7z\xbc\xaf", "a 7z archive: unpack it first"),
    MAGIC(0, "PK\x05\x06", "an empty zip archive"),
    MAGIC(0, "PK\x07\x08", "a zip archive in several pieces"),
    MAGIC(257, "ustar", "a tar archive: unpack it first"),
    MAGIC(0, "\x89HDF", "an HDF5 (Keras) file, which is not supported"),
    MAGIC(0, "\x93NUMPY", "a NumPy array, not a model"),
    MAGIC(4, "TFL3", "a TensorFlow Lite file, which is not supported"),
    MAGIC(0, "\x08\x01\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x02\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x03\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x04\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x05\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x06\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x07\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x08\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x09\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x08\x0a\x12", "an ONNX file (by the look of it), which is not supported"),
    MAGIC(0, "\x7f" "ELF", "a program, not a model"),
};

static bool begins(const uint8_t *data, size_t size, const char *s)
{
    size_t n = strlen(s);
    return size >= n && memcmp(data, s, n) == 0;
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* An object of JSON text: the second byte is never 0, as it is in the length
 * of a safetensors header that happens to be 123 ('{') bytes long. */
static bool is_json(const uint8_t *data, size_t size)
{
    size_t i = 0;
    while (i < size && i < 64 && is_space(data[i]))
        i++;
    if (i + 1 >= size || data[i] != '{')
        return false;
    return data[i + 1] == '"' || data[i + 1] == '}' || is_space(data[i + 1]);
}

/* u64 header length, then the header's '{'.  A length that fits the file will
 * do too, so that a damaged header is called one. */
static bool is_safetensors(const uint8_t *data, size_t size)
{
    if (size < 9)
        return false;
    uint64_t len = le64(data);
    return data[8] == '{' || (len >= 2 && len <= size - 8);
}

static int refuse_unknown(const uint8_t *data, size_t size, struct err *err)
{
    if (size < 9)
        return err_set(err, ERR_FORMAT, "truncated: %zu bytes are too few for any model file", size);
    struct buf b;
    buf_init(&b);
    for (size_t i = 0; i < 8; i++)
        buf_printf(&b, "%s%02x", i ? " " : "", data[i]);
    buf_puts(&b, " (\"");
    for (size_t i = 0; i < 8; i++)
        buf_putc(&b, data[i] >= 32 && data[i] < 127 ? (char)data[i] : '.');
    buf_puts(&b, "\")");
    int rc = err_set(err, ERR_FORMAT,
                     "unknown kind of file (no magic of safetensors, PyTorch zip or GGUF): begins with %s",
                     buf_str(&b));
    buf_fini(&b);
    return rc;
}

int sniff(const uint8_t *data, size_t size, enum sniff_kind *out, struct err *err)
{
    if (size == 0)
        return err_set(err, ERR_FORMAT, "truncated: the file is empty");
    if (begins(data, size, "GGUF")) {
        *out = SNIFF_GGUF;
        return 0;
    }
    if (begins(data, size, "PK\x03\x04")) {
        *out = SNIFF_PTH;
        return 0;
    }
    if (is_json(data, size)) {
        *out = SNIFF_INDEX;
        return 0;
    }
    /* '{' behind a plausible header length wins over the two-byte magics below. */
    if (size >= 9 && data[8] == '{' && le64(data) <= size - 8) {
        *out = SNIFF_SAFETENSORS;
        return 0;
    }
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        const struct magic *m = &foreign[i];
        if (size >= m->at + m->len && memcmp(data + m->at, m->bytes, m->len) == 0)
            return err_set(err, ERR_UNSUPPORTED, "this is %s", m->what);
    }
    if (is_safetensors(data, size)) {
        *out = SNIFF_SAFETENSORS;
        return 0;
    }
    return refuse_unknown(data, size, err);
}
