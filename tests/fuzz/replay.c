/* Main of a fuzz target without a fuzzer: runs the target on every file of the
 * folders and on every file named on the command line.  Each input lies in an
 * allocation of its own size, so that sanitizers and valgrind see reads behind it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);
    int ok = f && data && fread(data, 1, size, f) == size;
    if (f)
        fclose(f);
    if (ok)
        LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return ok;
}

/* Files below path, at most `depth` folders deep; returns how many ran, -1 on failure. */
static int run_path(const char *path, int depth)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return -1;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size) ? 1 : -1;
    DIR *d = depth > 0 ? opendir(path) : NULL;
    if (!d)
        return depth > 0 ? -1 : 0;
    int n = 0;
    for (struct dirent *e = readdir(d); e && n >= 0; e = readdir(d)) {
        char name[4096];
        if (e->d_name[0] == '.')
            continue;
        int len = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        int k = len > 0 && (size_t)len < sizeof name ? run_path(name, depth - 1) : -1;
        n = k < 0 ? -1 : n + k;
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = run_path(argv[i], 4);
        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs ran\n", total);
    return total > 0 ? 0 : 1;
}
