/* Read-only file mappings and path helpers.
 *
 * Knows files and folders, no format.  The one place that opens files for
 * reading, so that pipes, devices and folders are refused alike. */
#include "base/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "no regular file";
}

int map_open(struct map *m, const char *path, struct err *err)
{
    struct stat st;
    int rc = 0;
    *m = (struct map){0};
    /* O_NONBLOCK: opening a pipe without a writer must not wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        rc = err_set(err, ERR_IO, "%s: cannot read its size: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(err, ERR_IO, "%s: this is %s, a file is needed", path, file_kind(st.st_mode));
        goto fail;
    }
    if ((uintmax_t)st.st_size > PTRDIFF_MAX) {
        rc = err_set(err, ERR_LIMIT, "%s: %jd bytes are more than can be mapped", path,
                     (intmax_t)st.st_size);
        goto fail;
    }
    m->path = mem_strdup(path);
    if (!m->path) {
        rc = err_set(err, ERR_NOMEM, "%s: out of memory", path);
        goto fail;
    }
    if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_set(err, errno == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: cannot map %jd bytes: %s",
                         path, (intmax_t)st.st_size, strerror(errno));
            goto fail;
        }
        m->data = p;
        m->size = (size_t)st.st_size;
    }
    close(fd);
    return 0;
fail:
    close(fd);
    map_close(m);
    return rc;
}

void map_close(struct map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    free(m->path);
    *m = (struct map){0};
}

int map_read_all(const char *path, size_t limit, char **data, size_t *len, struct err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    char *p = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;
    *data = NULL;
    *len = 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, ERR_IO, "%s: cannot open: %s", name, strerror(errno));
    for (;;) {
        char *q = n < SIZE_MAX - 65537 ? mem_grow(p, &cap, n + 65537, 1) : NULL;
        if (!q) {
            rc = err_set(err, ERR_NOMEM, "%s: out of memory after %zu bytes", name, n);
            goto fail;
        }
        p = q;
        ssize_t got = read(fd, p + n, cap - n - 1);
        if (got < 0) {
            rc = errno == EINTR ? err_set(err, ERR_CANCELLED, "%s: reading was interrupted", name)
                                : err_set(err, ERR_IO, "%s: cannot read: %s", name, strerror(errno));
            goto fail;
        }
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > limit) {
            rc = err_set(err, ERR_LIMIT, "%s: more than %zu bytes", name, limit);
            goto fail;
        }
    }
    if (!is_stdin)
        close(fd);
    p[n] = '\0';
    *data = p;
    *len = n;
    return 0;
fail:
    if (!is_stdin)
        close(fd);
    free(p);
    return rc;
}

/* Never through a link, nor over another's file. */
static FILE *open_beside(char *tmp, size_t size, const char *path)
{
    FILE *f = NULL;
    for (int i = 0; i < 100 && !f; i++) {
        snprintf(tmp, size, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        f = fopen(tmp, "wbx");
        if (!f && errno != EEXIST)
            break;
    }
    return f;
}

int path_replace(const char *path, const void *head, size_t head_len, const void *rest, size_t rest_len, struct err *err)
{
    if (path_exists(path) && !path_is_file(path))
        return err_set(err, ERR_IO, "%s: is no file, and is left as it is", path);
    size_t size = strlen(path) + 48;
    char *tmp = mem_array(size, 1);
    if (!tmp)
        return err_set(err, ERR_NOMEM, "%s: out of memory", path);
    FILE *f = open_beside(tmp, size, path);
    bool ok = f && (head_len == 0 || fwrite(head, head_len, 1, f) == 1) && (rest_len == 0 || fwrite(rest, rest_len, 1, f) == 1);
    if (f)
        ok = fclose(f) == 0 && ok;
    ok = ok && rename(tmp, path) == 0;
    int rc = ok ? 0 : err_set(err, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok && f)
        unlink(tmp);
    free(tmp);
    return rc;
}

bool path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

char *path_join(const char *dir, const char *name)
{
    size_t d = strlen(dir), n = strlen(name), size;
    bool slash = d > 0 && dir[d - 1] != '/';
    if (!mem_add(d + 2, n, &size))
        return NULL;
    char *p = mem_array(size, 1);
    if (!p)
        return NULL;
    memcpy(p, dir, d);
    if (slash)
        p[d++] = '/';
    memcpy(p + d, name, n);
    return p;
}

char *path_dirname(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
}

const char *path_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int path_list(const char *dir, char ***names, size_t *n, struct err *err)
{
    char **list = NULL;
    size_t count = 0, cap = 0;
    *names = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d)
        return err_set(err, ERR_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char **grown = mem_grow(list, &cap, count + 1, sizeof *list);
        if (!grown)
            goto fail;
        list = grown;
        list[count] = mem_strdup(e->d_name);
        if (!list[count])
            goto fail;
        count++;
    }
    closedir(d);
    if (count > 0)
        qsort(list, count, sizeof *list, by_name);
    *names = list;
    *n = count;
    return 0;
fail:
    closedir(d);
    path_list_free(list, count);
    return err_set(err, ERR_NOMEM, "%s: out of memory for its %zu names", dir, count);
}

void path_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}
