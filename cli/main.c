/* The mha command: picks the subcommand, and sees to it that what it printed has arrived. */
#include "cli/common/cli.h"

#include <errno.h>
#include <mha.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"demo", "a Vision Transformer learns to read digits and shows its heads", cmd_demo},
    {"train", "train a Vision Transformer on MNIST, or on digits drawn here", cmd_train},
    {"eval", "how good a model of a file is, and how fast", cmd_eval},
    {"classify", "what a model says to a picture, and where its heads look", cmd_classify},
    {"heads", "what every head of a model looks at, and what it is worth", cmd_heads},
    {"prune", "take out the heads that a model can do without", cmd_prune},
    {"view", "a page on which a model's heads, or any weights, are seen at work", cmd_view},
    {"explain", "one sentence through four attention heads, drawn step by step", cmd_explain},
    {"info", "this build and this machine: version, processor, instruction sets", cmd_info},
    {"bench", "verify attention on the shapes that people run, then time it", cmd_bench},
    {"layer", "a layer of one file over the inputs of another", cmd_layer},
    {"conformance", "run the cases of a folder against the library", cmd_conformance},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    fputs("Examples:\n"
          "  mha demo                     a model learns to read digits and shows its heads\n"
          "  mha train vit --out vit.safetensors\n"
          "                               a Vision Transformer, saved after every epoch\n"
          "  mha eval vit.safetensors --data ~/.cache/mha/mnist\n"
          "                               how good a model is, and what it takes for what\n"
          "  mha classify vit.safetensors seven.png --heads\n"
          "                               what it says to a picture, and where it looks\n"
          "  mha heads vit.safetensors    what each head looks at, over a set of images\n"
          "  mha prune vit.safetensors --max-drop 0.3 -o small.safetensors\n"
          "                               without the heads that it can do without\n"
          "  mha view vit.safetensors -o page.html\n"
          "                               a page on which its heads are seen at work\n"
          "  mha explain                  four heads at work on one sentence, step by step\n"
          "  mha info                     what this machine has, and what the library uses\n"
          "  mha info --json              the same for a program\n"
          "  mha bench --shape bert_base  how fast it is here, beside OpenBLAS\n"
          "  mha layer L.safetensors X.safetensors -o Y.safetensors\n"
          "                               a layer that PyTorch saved, over its inputs\n"
          "  mha conformance vectors/     check the library against a folder of cases\n"
          "\n"
          "Usage: mha COMMAND [OPTIONS]\n",
          out);
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-13s%s\n", commands[i].name, commands[i].summary);
    fputs("  --help       this text; 'mha COMMAND --help' tells more about a command\n"
          "  --version    the version of the library\n"
          "\n"
          "MHA_ISA=NAME in the environment forces an instruction set that 'mha info' lists.\n"
          "Exit status: 0 success, 1 a check failed, 2 wrong use or bad input.\n",
          out);
}

static int unknown(const char *word)
{
    const char *words[COMMANDS + 3] = {"--help", "--version"};
    for (int i = 0; i < COMMANDS; i++) words[2 + i] = commands[i].name;
    const char *near = cli_closest(word, words), *what = word[0] == '-' ? "option" : "command";
    if (near) cli_error("unknown %s '%s'; did you mean '%s'?", what, word, near);
    else cli_error("unknown %s '%s'; 'mha --help' lists them", what, word);
    return CLI_USAGE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (cli_wants_help(argv[1]) || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("mha %s\n", mha_version());
        return CLI_OK;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}

/* A full disk or a closed pipe shows at the latest when the stream is closed. */
int main(int argc, char **argv)
{
    cli_called(argv[0]);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error as a full disk is, not the end of the process */
    int status = dispatch(argc, argv);
    bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || lost) {
        fprintf(stderr, "mha: cannot write to standard output: %s\n", errno ? strerror(errno) : "a write failed");
        return status == CLI_OK ? CLI_FAILED : status;
    }
    return status;
}
