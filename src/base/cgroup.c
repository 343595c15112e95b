/* Control group limits, version 2 (one tree) and version 1 (a tree per
 * controller), by reading the kernel's files (Documentation/admin-guide/
 * cgroup-v2.rst and cgroup-v1/).
 *
 * In a container the path in /proc/self/cgroup may not exist below the root
 * that is mounted; the root's own files are then the container's. */
#include "base/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cgroup_read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, out + len, size - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    out[len] = '\0';
    return len > 0;
}

/* The path of this process in the tree of `controller` ("" = version 2), from the lines
 * "id:controller,controller:/path". */
static bool group_path(const char *self, const char *controller, char *out, size_t size)
{
    char text[8192];
    if (!cgroup_read_text(self, text, sizeof text))
        return false;
    for (char *line = text, *next; *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = '\0';
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        names++;
        bool found = *controller == '\0' && *names == '\0';
        for (char *p = names; *controller && *p;) {
            size_t len = strcspn(p, ",");
            found = found || (len == strlen(controller) && strncmp(p, controller, len) == 0);
            p += len + (p[len] == ',');
        }
        if (found && strlen(path) < size) {
            memcpy(out, path, strlen(path) + 1);
            return true;
        }
    }
    return false;
}

/* A number in DIR/FILE; "max" and unreadable are false. */
static bool read_u64(const char *dir, const char *file, uint64_t *out)
{
    char path[PATH_MAX], text[64], *end;
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    if (n < 0 || (size_t)n >= sizeof path || !cgroup_read_text(path, text, sizeof text))
        return false;
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || text[0] == '-')
        return false;
    *out = v;
    return true;
}

/* Value of "key N" in DIR/memory.stat, 0 if absent. */
static uint64_t stat_value(const char *dir, const char *key)
{
    char path[PATH_MAX], text[8192];
    int n = snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (n < 0 || (size_t)n >= sizeof path || !cgroup_read_text(path, text, sizeof text))
        return 0;
    size_t len = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, len) == 0 && p[len] == ' ')
            return strtoull(p + len + 1, NULL, 10);
    }
    return 0;
}

struct layout {
    const char *controller; /* "" = version 2 */
    const char *folder;     /* below the root */
    const char *limit, *usage, *inactive, *active;
};

static const struct layout memory_layouts[] = {
    {"", "", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file"},
};

static const struct layout cpu_layouts[] = {
    {"", "", "cpu.max", NULL, NULL, NULL},
    {"cpu", "/cpu", "cpu.cfs_quota_us", NULL, NULL, NULL},
};

static bool memory_left_in(const struct layout *l, const char *dir, double *left)
{
    uint64_t limit, usage, cache;
    /* version 1 writes "no limit" as a number near 2^63 */
    if (!read_u64(dir, l->limit, &limit) || limit >= UINT64_C(1) << 60)
        return false;
    if (!read_u64(dir, l->usage, &usage))
        usage = 0;
    cache = stat_value(dir, l->inactive) + stat_value(dir, l->active);
    usage -= cache < usage ? cache : usage;
    *left = usage < limit ? (double)(limit - usage) : 0;
    return true;
}

static bool cpu_quota_in(const struct layout *l, const char *dir, double *cpus)
{
    double quota = 0, period = 0;
    if (*l->controller == '\0') {
        char path[PATH_MAX], text[64], *end;
        int n = snprintf(path, sizeof path, "%s/%s", dir, l->limit);
        if (n < 0 || (size_t)n >= sizeof path || !cgroup_read_text(path, text, sizeof text))
            return false;
        quota = (double)strtoull(text, &end, 10); /* "max 100000" or "150000 100000" */
        if (end == text)
            return false;
        period = (double)strtoull(end, NULL, 10);
    } else {
        uint64_t q, p;
        if (!read_u64(dir, l->limit, &q) || !read_u64(dir, "cpu.cfs_period_us", &p))
            return false;
        quota = (double)q;
        period = (double)p;
    }
    if (quota <= 0 || period <= 0)
        return false;
    *cpus = quota / period;
    return true;
}

typedef bool limit_fn(const struct layout *l, const char *dir, double *value);

/* The smallest value over both versions, the process's group and all groups above it. */
static bool tightest(const struct layout *layouts, limit_fn *fn, const char *self, const char *root,
                     double *best)
{
    bool found = false;
    for (int i = 0; i < 2; i++) {
        char path[2048], dir[PATH_MAX];
        const struct layout *l = &layouts[i];
        if (!group_path(self, l->controller, path, sizeof path))
            continue;
        for (;;) {
            size_t len = strlen(path);
            while (len > 0 && path[len - 1] == '/')
                path[--len] = '\0';
            int n = snprintf(dir, sizeof dir, "%s%s%s", root, l->folder, path);
            double v;
            if (n > 0 && (size_t)n < sizeof dir && fn(l, dir, &v) && (!found || v < *best)) {
                *best = v;
                found = true;
            }
            char *slash = strrchr(path, '/');
            if (!slash)
                break;
            *slash = '\0';
        }
    }
    return found;
}

bool cgroup_memory_left(const char *self, const char *root, uint64_t *left)
{
    double v;
    if (!tightest(memory_layouts, memory_left_in, self, root, &v))
        return false;
    *left = (uint64_t)v;
    return true;
}

bool cgroup_cpu_quota(const char *self, const char *root, double *cpus)
{
    return tightest(cpu_layouts, cpu_quota_in, self, root, cpus);
}
