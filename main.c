/* main: selects the subcommand. It is the only file that may include headers of every folder. */
#include "tools/partition/main.h"
#include "common/build_info.h"
#include "common/json.h"
#include "machine/machine.h"
#include "model/file/mapping.h"
#include "server/serve.h"
#include "tools/admin/admin.h"
#include "tools/check/check.h"
#include "tools/doctor/doctor.h"
#include "tools/fetch/fetch.h"
#include "tools/plan/main.h"
#include "tools/profile/profile.h"
#include "tools/replay/replay.h"
#include "tools/simulate/simulate.h"
#include "tools/trace/main.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name. Returns the exit status.  */
    const char *help;
};

static const struct command commands[] = {
    {"serve", serve_main, "start a cluster: the gateway, and its machines on this computer"},
    {"machine", machine_main, "run one machine of a cluster"},
    {"check", check_main, "find what will fail with a config on this host, before it does"},
    {"model", model_main, "download a model and check it"},
    {"status", status_main, "show running gateways: machines, links, requests"},
    {"top", top_main, "the same as a live screen, with rates, latencies and phases"},
    {"machines", machines_main, "list, add or remove machines of running gateways"},
    {"requests", requests_main,
     "list the latest requests of running gateways, or show the life of one"},
    {"bundle", bundle_main, "collect what a bug report needs into a tar file, without secrets"},
    {"drain", drain_main, "give a machine no new requests, before maintenance"},
    {"undrain", undrain_main, "use a drained machine again"},
    {"reload", reload_main, "make gateways read their config again"},
    {"doctor", doctor_main, "show what this computer has, and whether it can serve"},
    {"profile", profile_main,
     "measure a model on this computer, for the partitioner and the simulator"},
    {"partition", partition_main, "split a model's layers over devices, from a profile"},
    {"simulate", simulate_main,
     "run the scheduler on simulated machines, or on a gateway's event log"},
    {"plan", plan_main, "find how many prompt and token machines, of which kind, an SLO needs"},
    {"trace", trace_main, "describe a trace: lengths, rate over time, active tokens"},
    {"replay", replay_main, "send a trace to an OpenAI-style server and report latencies"},
};

static int help(void)
{
    printf("usage: cleave COMMAND …\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\ncleave COMMAND --help describes a command and its options.\n");
    return 0;
}

/* Prints every subcommand's table of options, for man pages and completions. */
static int tables(void)
{
    printf("{\"commands\": [\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char name[16], json[] = "--help=json";
        char *arguments[] = {name, json, NULL};
        snprintf(name, sizeof(name), "%s", commands[i].name);
        printf("%s{\"summary\": \"%s\", \"table\":\n", i > 0 ? ", " : "", commands[i].help);
        fflush(stdout);
        if (commands[i].run(2, arguments) != 0)
            return 1;
        printf("}\n");
    }
    printf("]}\n");
    return 0;
}

/* Returns the exit status of a command that ended with `exit_status`: 1 instead of 0 if standard
 * output could not be written, for example because the disk is full. */
static int output_check(const char *name, int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    fprintf(stderr, "cleave %s: standard output cannot be written\n", name);
    return exit_status != 0 ? exit_status : 1;
}

static int command_run(const struct command *command, int argc, char **argv)
{
    /* These two serve, whether someone reads their output or not. */
    bool serves = command->run == serve_main || command->run == machine_main;
    /* A report must not lack a member. `top` makes no reports, and must restore the terminal. */
    if (!serves && command->run != top_main)
        json_exit_without_memory();
    int exit_status = command->run(argc, argv);
    return serves ? exit_status : output_check(command->name, exit_status);
}

int main(int argc, char **argv)
{
    mapping_fault_handler_install();
    build_info_commit_set(build_info_described);
    signal(SIGXFSZ, SIG_IGN); /* A file at the limit (ulimit -f) is an error, like a full disk. */
    if (argc < 2) {
        fprintf(stderr, "cleave: no command given (cleave --help lists the commands)\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return command_run(&commands[i], argc - 1, argv + 1);
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return output_check("--help", help());
    if (strcmp(argv[1], "--help=json") == 0)
        return output_check("--help", tables());
    if (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0) {
        build_info_print(stdout);
        return output_check("--version", 0);
    }
    fprintf(stderr, "cleave: unknown command \"%s\" (cleave --help lists the commands)\n", argv[1]);
    return 2;
}
