/* admin: the subcommands of administrators, such as `cleave status`. They send requests to running
 * gateways and print the answers; they do not read config files. main.c calls each function on the
 * main thread; argv[0] is the subcommand's name. The functions return the exit status: 0 = done;
 * 2 = wrong options; 1 = another failure, also if only one of several gateways failed. */
#ifndef TOOLS_ADMIN_ADMIN_H
#define TOOLS_ADMIN_ADMIN_H

int status_main(int argc, char **argv); /* 1 also if a gateway is not ready. */
int machines_main(int argc, char **argv);
int drain_main(int argc, char **argv);
int undrain_main(int argc, char **argv);
int reload_main(int argc, char **argv);
int requests_main(int argc, char **argv); /* 1 also if no gateway has the request. */
/* Writes a new tar file with the answers of the gateways and the latest log lines of this host's
 * gateways and machines (host_logs.h). Removes the tar file if writing fails. */
int bundle_main(int argc, char **argv);
int top_main(int argc, char **argv); /* Only the last screen decides the exit status. */

#endif
