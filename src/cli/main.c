/* forge: finds the command, reads its flags, runs it.
 * The only main(), the only table of commands, the help and the version; knows
 * nothing of what the commands do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cli/cmd.h"
#include "cli/tools.h"

static const struct cmd *const commands[] = {
    &cmd_generate, &cmd_chat,    &cmd_logits,  &cmd_sample, &cmd_perplexity, &cmd_render, &cmd_tokenize,
    &cmd_inspect,  &cmd_devices, &cmd_bench,  &cmd_sample_sweep, &cmd_selftest,
    &cmd_tune,     &cmd_serve,
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

#define GROUPS_MAX 4

static void print_help(void)
{
    out_puts("usage: forge COMMAND [flags]\n\n"
             "Runs language models: from a file people have to text.\n\ncommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        out_printf("  %-14s%s\n", commands[i]->name, commands[i]->summary);
    out_puts("\n'forge COMMAND --help' explains every flag of a command, with its default.\n"
             "'forge --version' prints the version, with -v also libraries and build options.\n\n"
             "Without -m the model is the one in FORGE_MODEL, else the small built-in one:\n"
             "  forge generate --echo -p \"The capital of France is\"\n");
}

#define HAVE(macro) (macro ? "yes" : "no")

static void print_version(bool verbose)
{
    out_printf("forge %s\n", forge_version());
    if (!verbose)
        return;
#ifndef HAVE_OPENCL
#define HAVE_OPENCL 0
#endif
#ifndef HAVE_CLBLAST
#define HAVE_CLBLAST 0
#endif
#ifndef HAVE_MICROHTTPD
#define HAVE_MICROHTTPD 0
#endif
    tool_print_libraries();
    out_printf("found when built: OpenCL %s, CLBlast %s, HTTP server %s\n",
               HAVE(HAVE_OPENCL), HAVE(HAVE_CLBLAST), HAVE(HAVE_MICROHTTPD));
    out_puts("built with:");
#ifdef __VERSION__
    out_printf(" compiler %s", __VERSION__);
#endif
#ifdef __SANITIZE_ADDRESS__
    out_puts(", address sanitizer");
#endif
    out_puts("\n");
#ifdef FORGE_DATADIR
    out_printf("data: %s\n", FORGE_DATADIR);
#endif
}

static const struct cmd *find_command(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS], *near;
    char list[256] = "";
    size_t len = 0;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i]->name;
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i ? ", " : "", names[i]);
    }
    near = opts_nearest(name, names, N_COMMANDS);
    msg_error("unknown command '%s'%s%s%s; there are: %s", name, near ? ", did you mean " : "",
              near ? near : "", near ? "?" : "", list);
    return EXIT_USAGE;
}

/* Words before a command: --help, --version [-v]. */
static int without_command(int argc, char **argv)
{
    bool version = false, verbose = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help();
            return EXIT_OK;
        }
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0)
            version = true;
        else if (strcmp(argv[i], "-v") == 0 || strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else {
            msg_error("'%s' is no flag of forge itself; a command comes first (forge --help lists them)",
                      argv[i]);
            return EXIT_USAGE;
        }
    }
    if (version) {
        print_version(verbose);
        return EXIT_OK;
    }
    msg_error("no command given (forge --help lists them)");
    return EXIT_USAGE;
}

static size_t flag_groups(struct opt_group *groups, const struct cmd *cmd, void *args, struct common *common)
{
    static const struct {
        const struct opt *opts;
        const char *title;
    } titles[] = {
        {common_model_opts, "model"},
        {common_device_opts, "device and memory"},
    };
    size_t n = 0;
    groups[n++] = (struct opt_group){"flags", cmd->opts, args};
    for (size_t i = 0; i < 2 && cmd->shared[i]; i++) {
        const char *title = titles[0].opts == cmd->shared[i] ? titles[0].title : titles[1].title;
        groups[n++] = (struct opt_group){title, cmd->shared[i], common};
    }
    groups[n++] = (struct opt_group){"messages", common_talk_opts, common};
    return n;
}

static int run_command(const struct cmd *cmd, int argc, char **argv)
{
    struct opt_group groups[GROUPS_MAX];
    struct common common = {0};
    int status = EXIT_USAGE;
    void *args = calloc(1, cmd->args_size);
    if (!args) {
        msg_error("out of memory");
        return EXIT_FAILED;
    }
    size_t n = flag_groups(groups, cmd, args, &common);
    opts_defaults(groups, n);
    bool has_subject = cmd->subject && argc > 0 && strcmp(argv[0], cmd->subject) == 0;
    enum opts_result parsed = opts_parse(groups, n, cmd->name, argc - has_subject, argv + has_subject);
    if (parsed == OPTS_OK && cmd->subject && !has_subject) {
        msg_usage(cmd->name, "what to %s is missing; there is: forge %s %s", cmd->name, cmd->name, cmd->subject);
        parsed = OPTS_ERROR;
    }
    switch (parsed) {
    case OPTS_HELP:
        out_printf("usage: forge %s %s\n\n%s.\n", cmd->name, cmd->usage, cmd->summary);
        if (cmd->notes)
            out_printf("%s\n", cmd->notes);
        for (size_t i = 0; i < n; i++)
            opts_help(&groups[i]);
        status = EXIT_OK;
        break;
    case OPTS_ERROR:
        break;
    case OPTS_OK:
        msg_set_level(common.verbose, common.quiet);
        if (common_check(&common, cmd->name) == 0 && common_log(&common, cmd->name) == 0)
            status = cmd->run(args, &common);
        break;
    }
    opts_free(groups, n);
    free(args);
    return status;
}

int main(int argc, char **argv)
{
    int status;
    out_init();
    bus_error_catch();
    if (argc < 2 || argv[1][0] == '-')
        status = without_command(argc, argv);
    else {
        const struct cmd *cmd = find_command(argv[1]);
        status = cmd ? run_command(cmd, argc - 2, argv + 2) : unknown_command(argv[1]);
    }
    return out_finish(status);
}
