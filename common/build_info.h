/* build_info: says which build of cleave this process runs. main.c sets the commit before any other
 * thread starts. After that, any thread may call the other functions. This part does not know the
 * versions of the protocol (transport/protocol.h). */
#ifndef COMMON_BUILD_INFO_H
#define COMMON_BUILD_INFO_H

#include <stdio.h>

/* The text of the file `described` in the source; without this file, the output of `git describe`;
 * empty = neither exists. The program `cleave` defines this variable; the libraries do not. */
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
