/* main: picks the subcommand. The one file that may know every folder (it composes them). */
#include "common/status.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "cleave: no subcommand is built yet\n");
    return 2;
}
