/* admin_top: `cleave top`: a screen that is written again and again, with ANSI control sequences.
 * Without a terminal it prints plain lines. Each round asks every gateway for /admin/state and
 * /metrics. */
#include "tools/admin/admin.h"
#include "tools/admin/client.h"
#include "tools/admin/screen.h"
#include "tools/admin/view.h"

#include "common/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct top_options {
    struct admin_target target;
    double interval_s;
    uint64_t count; /* 0 = until the user ends it. */
};

#define FIELD(member) offsetof(struct top_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    ADMIN_OPTIONS(top_options, target),
    {"interval-s", "S", OPTION_REAL, FIELD(interval_s), 0.1, 3600, {NULL}, "1", "seconds between two pictures"},
    {"count", "N", OPTION_WHOLE, FIELD(count), 0, 1e9, {NULL}, "0", "end after N pictures; 0: only the user ends it"},
};
/* clang-format on */

static const struct option_table table = {
    .command = "top",
    .usage = "[--option value]…",
    .about =
        "Shows gateways, problems, machines, queues, KV memory, links, phases and SLO, again each "
        "second.\nq or Ctrl-C ends it. Where the output is no terminal, it prints lines.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0])};

#define SCREEN_BEGIN "\x1b[?1049h\x1b[?25l" /* The alternate screen, without a cursor. */
#define SCREEN_END   "\x1b[?25h\x1b[?1049l"
#define CURSOR_HOME  "\x1b[H"
#define LINE_CLEAR   "\x1b[K"
#define BELOW_CLEAR  "\x1b[J"

struct terminal {
    bool output; /* Standard output is a terminal. */
    bool input;  /* Standard input is one, too: a key ends the picture. */
    struct termios before;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

static void on_resize(int number)
{
    (void)number; /* Interrupts poll: the picture is drawn again. */
}

static void signals_catch(void)
{
    struct sigaction end = {.sa_handler = on_signal}, resize = {.sa_handler = on_resize};
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    sigaction(SIGWINCH, &resize, NULL);
}

static void terminal_begin(struct terminal *t)
{
    t->output = isatty(STDOUT_FILENO);
    t->input = t->output && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &t->before) == 0;
    signals_catch();
    if (t->input) {
        struct termios raw = t->before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    if (t->output)
        fputs(SCREEN_BEGIN, stdout);
}

static void terminal_end(const struct terminal *t)
{
    if (t->output)
        fputs(SCREEN_END, stdout);
    fflush(stdout);
    if (t->input)
        tcsetattr(STDIN_FILENO, TCSANOW, &t->before);
}

/* Writes a line, at most `columns` characters of it. */
static void line_write(const char *line, size_t bytes, unsigned columns)
{
    size_t used = 0;
    for (unsigned column = 0; used < bytes && column < columns; column++) {
        used++;
        while (used < bytes && ((unsigned char)line[used] & 0xC0) == 0x80)
            used++;
    }
    fwrite(line, 1, used, stdout);
}

/* Writes the picture over the earlier one, cut to the terminal. */
static void picture_show(const struct terminal *t, const char *text)
{
    struct winsize size = {.ws_row = 0};
    if (!t->output) {
        fputs(text, stdout);
        fflush(stdout);
        return;
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    fputs(CURSOR_HOME, stdout);
    for (unsigned row = 0; *text != 0 && row + 1 < size.ws_row; row++) {
        size_t bytes = strcspn(text, "\n");
        line_write(text, bytes, size.ws_col);
        fputs(LINE_CLEAR "\r\n", stdout);
        text += bytes + (text[bytes] == '\n');
    }
    fputs(BELOW_CLEAR, stdout);
    fflush(stdout);
}

/* Appends the lines of one gateway. */
static enum status gateway_draw(struct admin_client *client, unsigned gateway,
                                struct screen_sample *before, FILE *out, struct error *error)
{
    json_t *state = NULL;
    char *page = NULL;
    struct screen_sample now = {.known = false};
    enum status status =
        admin_client_json(client, gateway, "GET", "/admin/state", NULL, &state, error);
    if (status == ST_OK)
        status = admin_client_text(client, gateway, "GET", "/metrics", NULL, &page, error);
    if (status == ST_OK) {
        screen_sample_read(page, clock_now_us(&clock_system), &now);
        screen_write(state, admin_client_name(client, gateway), &now, before, out);
        *before = now;
    } else {
        fprintf(out, "%s\n", error->text);
        before->known = false;
        if (status == ST_UNREACHABLE) {
            json_decref(state);
            state = view_silent_state(error->text);
            view_problems(state, 1, out);
        }
    }
    free(page);
    json_decref(state);
    return status;
}

/* Draws all gateways. The status is that of the last one that failed. */
static enum status draw(struct admin_client *client, const struct terminal *t,
                        struct screen_sample *samples, struct error *error)
{
    char *text = NULL, clock[32];
    size_t bytes;
    const time_t now = time(NULL);
    struct tm utc;
    enum status result = ST_OK;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    gmtime_r(&now, &utc);
    strftime(clock, sizeof(clock), "%Y-%m-%d %H:%M:%S UTC", &utc);
    fprintf(out, "cleave top  %s%s\n", clock, t->input ? "  (q ends)" : "");
    for (unsigned i = 0; i < admin_client_count(client); i++) {
        fputc('\n', out);
        enum status status = gateway_draw(client, i, &samples[i], out, error);
        if (status != ST_OK)
            result = status;
    }
    if (fclose(out) == 0)
        picture_show(t, text);
    free(text);
    return result;
}

/* Waits until the next picture is due, the user ends it, or the terminal's size changes. */
static void wait(const struct terminal *t, double seconds)
{
    struct pollfd input = {.fd = t->input ? STDIN_FILENO : -1, .events = POLLIN};
    char key;
    if (poll(&input, 1, (int)(seconds * 1000)) <= 0)
        return;
    if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
        ended = 1;
}

int top_main(int argc, char **argv)
{
    struct top_options options = {.count = 0};
    struct admin_client *client = NULL;
    struct error error = {""};
    struct terminal terminal;
    int result = options_start(&table, argc, argv, &options);
    if (result >= 0)
        return result;
    enum status status = admin_client_open(&options.target, &client, &error);
    if (status != ST_OK)
        return options_fail(&table, status, &error);
    struct screen_sample *samples = calloc(admin_client_count(client), sizeof(*samples));
    if (samples == NULL) {
        admin_client_close(client);
        return options_fail(&table, ST_NO_MEMORY, &error);
    }
    terminal_begin(&terminal);
    for (uint64_t i = 0; !ended && (options.count == 0 || i < options.count); i++) {
        if (i > 0)
            wait(&terminal, options.interval_s);
        if (!ended)
            status = draw(client, &terminal, samples, &error);
    }
    terminal_end(&terminal);
    free(samples);
    admin_client_close(client);
    return status == ST_OK ? 0 : options_fail(&table, status, &error);
}
