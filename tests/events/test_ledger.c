/* Goal: the usage ledger has exactly one line for each answer, with the tokens that were counted,
 * also when the process is killed at any moment, the disk is full, the file is moved or its last
 * line is torn. Method: scratch files; a child process that begins, counts and ends random answers,
 * writes into shared memory what it does, and is killed; /dev/full as the disk. */
#include "events/ledger.h"
#include "tests/check.h"

#include "common/random.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = TEST_SANITIZED ? 10 : 40, ANSWERS = 100000, OPEN = 64 };

static char folder[] = "/tmp/cleave-ledger-XXXXXX";
static char path[64], open_path[72];

static struct ledger *ledger_at(void)
{
    struct ledger *ledger;
    struct error error;
    CHECKF(ledger_open(path, &ledger, &error) == ST_OK, "%s", error.text);
    return ledger;
}

static void files_remove(void)
{
    unlink(path);
    unlink(open_path);
}

/* Returns the file's lines as a list. A line that is torn is in the list as text. */
static json_t *lines_read(void)
{
    static char line[8192];
    FILE *file = fopen(path, "r");
    json_t *list = json_array();
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        json_t *object = json_loads(line, 0, NULL);
        json_array_append_new(list,
                              object != NULL ? object : json_stringn(line, strcspn(line, "\n")));
    }
    fclose(file);
    return list;
}

static long long number_of(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const char *text_of(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));
    return text != NULL ? text : "";
}

static void wait_written(struct ledger *ledger, uint64_t lines)
{
    for (int i = 0; i < 60000 && ledger_counts(ledger).written < lines; i++)
        usleep(1000);
    CHECK(ledger_counts(ledger).written == lines);
}

static void test_lines(void)
{
    struct ledger *ledger = ledger_at();
    struct ledger_entry *first = ledger_begin(ledger, "id \"1\"", "chatcmpl-1", "team-a", "m");
    struct ledger_entry *second = ledger_begin(ledger, "2", "", "", "");
    struct ledger_entry *third = ledger_begin(ledger, "3", "", "", "");
    first->prompt_tokens = 12;
    first->cached_tokens = 8;
    first->answer_tokens = 3;
    ledger_end(ledger, second, 503, "error");
    ledger_drop(ledger, third);
    first->answer_tokens++;
    ledger_end(ledger, first, 200, "stop");
    ledger_end(ledger, NULL, 200, "stop");
    wait_written(ledger, 2);
    ledger_close(ledger);
    json_t *lines = lines_read();
    CHECK(json_array_size(lines) == 2);
    const json_t *line = json_array_get(lines, 0);
    CHECK(number_of(line, "number") == 2 && number_of(line, "status") == 503);
    line = json_array_get(lines, 1);
    CHECK(number_of(line, "number") == 1 && number_of(line, "status") == 200 &&
          number_of(line, "prompt_tokens") == 12 && number_of(line, "cached_tokens") == 8 &&
          number_of(line, "answer_tokens") == 4 &&
          strcmp(text_of(line, "request"), "id \"1\"") == 0 &&
          strcmp(text_of(line, "answer"), "chatcmpl-1") == 0 &&
          strcmp(text_of(line, "key"), "team-a") == 0 &&
          strcmp(text_of(line, "finish"), "stop") == 0 && strlen(text_of(line, "began")) == 24 &&
          strlen(text_of(line, "ended")) == 24);
    json_decref(lines);
    struct stat info;
    CHECK(stat(path, &info) == 0 && (info.st_mode & 077) == 0);
    CHECK(stat(open_path, &info) == 0 && (info.st_mode & 077) == 0);
    /* Nothing is left, and numbers go on. */
    ledger = ledger_at();
    CHECK(ledger_counts(ledger).left_by_earlier == 0 && ledger_counts(ledger).torn_bytes == 0);
    first = ledger_begin(ledger, "4", "", "", "");
    CHECK(first->number == 4);
    ledger_end(ledger, first, 200, "stop");
    ledger_close(ledger);
    files_remove();
}

static void test_one_process(void)
{
    struct ledger *ledger = ledger_at(), *other;
    struct error error;
    CHECK(ledger_open(path, &other, &error) == ST_NO_RESOURCE);
    CHECKF(strstr(error.text, path) != NULL && strstr(error.text, "another process") != NULL, "%s",
           error.text);
    ledger_close(ledger);
    files_remove();
    int fd = open(open_path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "mine", 4) == 4 && close(fd) == 0);
    CHECK(ledger_open(path, &other, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "move it away") != NULL, "%s", error.text);
    char text[8];
    fd = open(open_path, O_RDONLY);
    CHECK(read(fd, text, sizeof(text)) == 4 && close(fd) == 0);
    files_remove();
    CHECK(ledger_open("/nonexistent/ledger", &other, &error) == ST_IO);
}

/* A line that was never completed stays, is ended and is marked. */
static void test_torn(void)
{
    struct ledger *ledger = ledger_at();
    ledger_end(ledger, ledger_begin(ledger, "1", "", "", ""), 200, "stop");
    ledger_close(ledger);
    int fd = open(path, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, "{\"number\":2,\"beg", 16) == 16 && close(fd) == 0);
    ledger = ledger_at();
    CHECK(ledger_counts(ledger).torn_bytes == 16);
    ledger_end(ledger, ledger_begin(ledger, "3", "", "", ""), 200, "stop");
    ledger_close(ledger);
    json_t *lines = lines_read();
    CHECK(json_array_size(lines) == 4 && number_of(json_array_get(lines, 0), "number") == 1);
    CHECK(strcmp(json_string_value(json_array_get(lines, 1)), "{\"number\":2,\"beg") == 0);
    CHECK(number_of(json_array_get(lines, 2), "torn") == 16);
    CHECK(strcmp(text_of(json_array_get(lines, 3), "request"), "3") == 0);
    json_decref(lines);
    files_remove();
}

/* On a full disk lines wait; when the slots are used up, answers are counted as lost; when the disk
 * has room again, the lines follow. */
static void test_full_disk(void)
{
    struct error error;
    int fd;
    CHECK(symlink("/dev/full", path) == 0);
    struct ledger *ledger = ledger_at();
    for (int i = 0; i < LEDGER_SLOTS + 3; i++) {
        struct ledger_entry *entry = ledger_begin(ledger, "x", "", "", "");
        CHECK((entry != NULL) == (i < LEDGER_SLOTS));
        ledger_end(ledger, entry, 200, "stop");
    }
    for (int i = 0; i < 60000 && ledger_counts(ledger).failure[0] == 0; i++)
        usleep(1000);
    struct ledger_counts counts = ledger_counts(ledger);
    CHECKF(counts.written == 0 && counts.without_entry == 3 && counts.waiting == LEDGER_SLOTS &&
               strstr(counts.failure, "No space left") != NULL,
           "%s", counts.failure);
    CHECK(unlink(path) == 0 && ledger_file_open(ledger, &fd, &error) == ST_OK);
    CHECK(ledger_counts(ledger).written == 0); /* The old file is still in use. */
    ledger_file_use(ledger, fd);
    wait_written(ledger, LEDGER_SLOTS);
    CHECK(ledger_counts(ledger).failure[0] == 0 && ledger_counts(ledger).waiting == 0);
    /* A process that ends while the disk is full leaves them to the next one. */
    CHECK(unlink(path) == 0 && symlink("/dev/full", path) == 0);
    CHECK(ledger_file_open(ledger, &fd, &error) == ST_OK);
    ledger_file_use(ledger, fd);
    for (int i = 0; i < 5; i++)
        ledger_end(ledger, ledger_begin(ledger, "y", "", "", ""), 200, "stop");
    ledger_close(ledger);
    CHECK(unlink(path) == 0);
    ledger = ledger_at();
    CHECK(ledger_counts(ledger).left_by_earlier == 5);
    wait_written(ledger, 5);
    ledger_close(ledger);
    files_remove();
}

/* What the child says of an answer: bounds of its tokens, and what became of it. */
struct truth {
    uint64_t least, most; /* Tokens. */
    uint32_t begun, ended, dropped;
};

static void child_run(struct truth *truth, uint64_t seed)
{
    struct ledger *ledger = ledger_at();
    struct ledger_entry *open[OPEN] = {NULL};
    for (uint64_t draw = 0;; draw++) {
        uint64_t random = random_at(seed, draw);
        struct ledger_entry **at = &open[random % OPEN];
        if (*at == NULL) {
            *at = ledger_begin(ledger, "r", "a", "k", "m");
            CHECK(*at != NULL);
            while ((*at)->number >= ANSWERS)
                pause(); /* This computer is fast: enough was done. */
            truth[(*at)->number].begun = 1;
            continue;
        }
        struct truth *t = &truth[(*at)->number];
        if (random >> 32 & 15) {
            t->most++;
            (*at)->answer_tokens++;
            t->least++;
        } else if (random >> 32 & 16) {
            t->dropped = 1;
            ledger_drop(ledger, *at);
            *at = NULL;
        } else {
            t->ended = 1;
            ledger_end(ledger, *at, 200, "stop");
            t->ended = 2;
            *at = NULL;
        }
        if (draw % 50 == 0)
            usleep(100);
    }
}

static void check_round(const struct truth *truth)
{
    static uint32_t seen[ANSWERS + 1];
    memset(seen, 0, sizeof(seen));
    json_t *lines = lines_read();
    const json_t *line;
    size_t i;
    json_array_foreach(lines, i, line)
    {
        long long number = number_of(line, "number"), tokens = number_of(line, "answer_tokens");
        CHECKF(number > 0 && number <= ANSWERS && seen[number]++ == 0, "line %zu: number %lld", i,
               number);
        const struct truth *t = &truth[number];
        CHECKF(tokens >= (long long)t->least && tokens <= (long long)t->most,
               "number %lld: %lld tokens, want %llu to %llu", number, tokens,
               (unsigned long long)t->least, (unsigned long long)t->most);
        bool killed = strcmp(text_of(line, "finish"), "killed") == 0;
        CHECK(killed ? t->ended < 2 : t->ended >= 1);
        CHECK(killed == (json_object_get(line, "ended") == NULL));
    }
    for (int n = 0; n < ANSWERS; n++)
        CHECKF(!truth[n].begun || truth[n].dropped || seen[n] == 1, "number %d has no line", n);
    json_decref(lines);
}

static void test_kills(uint64_t seed)
{
    struct truth *truth = mmap(NULL, (ANSWERS + 1) * sizeof(*truth), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(truth != MAP_FAILED);
    uint64_t found = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            child_run(truth, random_at(seed, round));
        /* Some work is done; how much is the computer's affair. */
        usleep((useconds_t)(random_at(seed, ~round) % 20000));
        int status = 0;
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        CHECKF(WIFSIGNALED(status), "the child failed: %d", status);
        struct ledger *ledger = ledger_at();
        found += ledger_counts(ledger).left_by_earlier;
        wait_written(ledger, ledger_counts(ledger).left_by_earlier);
        CHECK(ledger_counts(ledger).torn_bytes == 0);
        ledger_close(ledger);
        if (round % 8 == 7 || round + 1 == ROUNDS) /* Each reads all lines. */
            check_round(truth);
    }
    printf("%d kills left %llu answers to the next process\n", ROUNDS, (unsigned long long)found);
    munmap(truth, (ANSWERS + 1) * sizeof(*truth));
    files_remove();
}

int main(void)
{
    uint64_t seed = test_seed();
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/ledger", folder);
    snprintf(open_path, sizeof(open_path), "%s.open", path);
    test_lines();
    test_one_process();
    test_torn();
    test_full_disk();
    test_kills(seed);
    CHECK(rmdir(folder) == 0);
    return 0;
}
