/* build_info: which build of cleave this process is. main.c sets the commit before any other thread
 * starts. After that, any thread may read the build. `cleave --version`, `cleave bundle`, /metrics,
 * /admin/state and the message ABOUT of a machine show the build. The commit is not compiled into
 * the libraries, so after a new commit only the program is linked again. This part does not know
 * the versions of the protocol (transport/protocol.h). */
#ifndef COMMON_BUILD_INFO_H
#define COMMON_BUILD_INFO_H

#include <stdio.h>

/* The output of `git describe` for the source. A source without git may have this text in a file
 * named `described`; empty = the source has neither. Only the program `cleave` defines this
 * variable, in a file that Meson makes from described.c.in. */
extern const char build_info_described[];

/* Sets the commit. `commit` is not copied and must stay valid. */
void build_info_commit_set(const char *commit);
/* Returns the commit; empty = unknown (a test, or a source without git). */
const char *build_info_commit(void);
/* Returns the release, such as "0.1.0". */
const char *build_info_release(void);
/* Returns compiler, processor and options of the build, such as "gcc 12.2.0, x86_64, release". */
const char *build_info_options(void);
/* Prints the text of --version: a line with release and commit, and a line with the options. */
void build_info_print(FILE *out);

#endif
