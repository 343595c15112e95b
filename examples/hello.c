/* The smallest useful program over libforge: continues a text, piece by piece.
 *
 *     cc hello.c $(pkg-config --cflags --libs forge) -o hello
 *     ./hello MODEL "The capital of France is"
 */
#include <forge.h>
#include <stdio.h>

/* Called for each piece of text as it becomes final; non-zero would stop the generation. */
static int print(void *user, const struct forge_piece *piece)
{
    (void)user;
    fwrite(piece->text, 1, piece->text_len, stdout);
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    struct forge_error err = {0};
    struct forge_engine_params ep;
    struct forge_request_params rp;
    struct forge_engine *engine;
    struct forge_request *request;

    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
        return 2;
    }
    forge_engine_params_init(&ep, sizeof ep);
    ep.model = argv[1];
    if (forge_engine_open(&engine, &ep, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    forge_request_params_init(&rp, sizeof rp);
    rp.text = argv[2];
    rp.max_tokens = 32;
    rp.on_piece = print;
    int rc = forge_generate(engine, &rp, &request, &err);
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.message);
    } else {
        const struct forge_metrics *m = forge_request_metrics(request);
        fprintf(stderr, "\n%llu tokens, the first after %.1f ms, then one every %.2f ms; ended by: %s\n",
                (unsigned long long)m->output_tokens, m->ttft_ms, m->tpot_ms,
                forge_finish_name(forge_request_finish(request, 0)));
    }
    forge_request_free(request);
    forge_engine_close(engine);
    return rc < 0;
}
