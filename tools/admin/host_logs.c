/* admin_host_logs: see the header. */
#include "tools/admin/host_logs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL                                                                                    \
    "timeout 10 journalctl --quiet --no-pager -o short-iso -n 2000 -u cleave.service "             \
    "-u 'cleave-machine@*' 2>/dev/null"

/* Returns true for `cleave serve …` and `cleave machine …`, by a path or a name. */
static bool is_cleave(const char *pid)
{
    char path[64], words[512] = "";
    snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t bytes = fread(words, 1, sizeof(words) - 1, file);
    fclose(file);
    words[bytes] = 0;
    const char *slash = strrchr(words, '/');
    const char *name = slash != NULL ? slash + 1 : words;
    const char *verb = words + strlen(words) + 1;
    return verb < words + bytes && strcmp(name, "cleave") == 0 &&
           (strcmp(verb, "serve") == 0 || strcmp(verb, "machine") == 0);
}

/* A line of common/log.h: a date and a time in UTC, or an object of JSON that begins with them. */
static bool is_log_line(const char *line)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    static const char json[] = "{\"time\":\"";
    if (strncmp(line, json, strlen(json)) == 0)
        line += strlen(json);
    for (size_t i = 0; form[i] != 0; i++)
        if (form[i] == 'd' ? !isdigit((unsigned char)line[i]) : line[i] != form[i])
            return false;
    return true;
}

/* Appends the log lines at the end of the file. Lines that have begun before are left out. */
static void tail_add(struct text *out, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    bool cut = fseek(file, 0, SEEK_END) == 0 && ftell(file) > HOST_LOGS_BYTES;
    bool found = cut ? fseek(file, -HOST_LOGS_BYTES, SEEK_END) == 0 : fseek(file, 0, SEEK_SET) == 0;
    /* The file may grow while it is read. */
    size_t left = HOST_LOGS_BYTES;
    ssize_t bytes = 0;
    while (found && (bytes = getline(&line, &room, file)) > 0 && (size_t)bytes <= left) {
        left -= (size_t)bytes;
        if (!cut && is_log_line(line))
            text_add(out, line, (size_t)bytes);
        cut = false;
    }
    /* getline found no memory: without the mark, the log would look complete. */
    out->broken |= found && bytes < 0 && !feof(file) && !ferror(file);
    free(line);
}

/* Removes whole lines from the front until at most HOST_LOGS_BYTES are left. */
static void tail_keep(struct text *text)
{
    if (text->bytes <= HOST_LOGS_BYTES)
        return;
    const char *from = text->data + text->bytes - HOST_LOGS_BYTES - 1;
    const char *line = memchr(from, '\n', HOST_LOGS_BYTES + 1);
    const size_t bytes = line != NULL ? (size_t)(text->data + text->bytes - line - 1) : 0;
    memmove(text->data, text->data + text->bytes - bytes, bytes);
    text->bytes = bytes;
}

static unsigned journal_read(struct host_log *out)
{
    char part[4096];
    size_t bytes;
    FILE *journal = popen(JOURNAL, "re");
    if (journal == NULL)
        return 0;
    *out = (struct host_log){.name = "journal.txt"};
    while ((bytes = fread(part, 1, sizeof(part), journal)) > 0) {
        text_add(&out->text, part, bytes);
        if (out->text.bytes > 2 * HOST_LOGS_BYTES)
            tail_keep(&out->text);
    }
    tail_keep(&out->text);
    pclose(journal);
    return out->text.bytes > 0 ? 1 : 0;
}

unsigned host_logs_read(struct host_log out[HOST_LOGS_FILES + 1])
{
    struct stat seen[HOST_LOGS_FILES], file_stat;
    unsigned count = 0, files = 0;
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes != NULL && files < HOST_LOGS_FILES && (entry = readdir(processes)) != NULL) {
        char path[64];
        if (!isdigit((unsigned char)entry->d_name[0]) || !is_cleave(entry->d_name))
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/fd/2", entry->d_name);
        if (stat(path, &file_stat) != 0 || !S_ISREG(file_stat.st_mode))
            continue;
        bool again = false; /* Local machines write to the file of their gateway. */
        for (unsigned i = 0; i < files; i++)
            again |= seen[i].st_dev == file_stat.st_dev && seen[i].st_ino == file_stat.st_ino;
        FILE *file = again ? NULL : fopen(path, "re");
        if (file == NULL)
            continue;
        seen[files++] = file_stat;
        struct host_log *log = &out[count];
        *log = (struct host_log){.name = ""};
        snprintf(log->name, sizeof(log->name), "stderr-%u.txt", files);
        tail_add(&log->text, file);
        fclose(file);
        if (log->text.bytes > 0)
            count++;
        else
            text_done(&log->text);
    }
    if (processes != NULL)
        closedir(processes);
    return count + journal_read(&out[count]);
}
