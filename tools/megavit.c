/* megavit: embeddings of pictures from the command line. A thin user of megavit.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "tools/cli.h"

static const cli_command *const commands[] = {&cli_embed, &cli_preprocess, &cli_inspect, &cli_search,
                                              &cli_classify, &cli_map, &cli_generate, &cli_chat, &cli_text, &cli_tokenize, &cli_plan, &cli_pack,
                                              &cli_bench, &cli_validate};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_commands(FILE *stream) {
    fprintf(stream, "megavit %s - embeddings of pictures\n\nusage: megavit COMMAND ...\n\n", mgv_version());
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(stream, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(stream, "  %-12s %s\n", "version", "the version, and which picture files this program reads, with what");
    fprintf(stream, "\nmegavit COMMAND --help tells more about each.\n"
                    "Exit codes: 0 done, 1 a usage mistake, 2 a bad file or picture, 3 the machine (memory, GPU, an index in use).\n");
}

/* The version, and which picture files it reads, with what. */
static void print_version(void) {
    const char *between = "pictures: ";
    const decoder *row;
    printf("megavit %s\n", mgv_version());
    for (size_t i = 0; (row = decode_table(i)) != NULL; i++) {
        if (!row->library) continue;
        printf("%s%s (%s)", between, row->name, row->library);
        between = ", ";
    }
    putchar('\n');
    between = "not built in: ";
    for (size_t i = 0; (row = decode_table(i)) != NULL; i++) {
        if (row->library || !row->package) continue;
        printf("%s%s (package %s)", between, row->name, row->package);
        between = ", ";
    }
    if (*between == ',') putchar('\n');
}

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        print_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_commands(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        print_version();
        return CLI_DONE;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) return commands[i]->run(commands[i], argc - 2, argv + 2);
    cli_fail(CLI_USAGE, NULL, "there is no command '%s'", argv[1]);
    print_commands(stderr);
    return CLI_USAGE;
}

/* Whoever starts us with a standard stream closed would have the first file that we open in its place, and what we print in that file.
   A directory holds the place: it takes nothing, and no output is the same file. */
static void hold_closed_streams(void) {
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0) open("/", O_RDONLY);
}

int main(int argc, char **argv) {
    int status;
    hold_closed_streams();
    status = run_command(argc, argv);
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    cli_fail_output();
    return status > CLI_BAD_FILE ? status : CLI_BAD_FILE;
}
