/* serve_keys: what changes for API keys as time passes: the day of their quotas, which continues
 * that of an earlier process of this gateway, and their expiry. */
#include "server/serve_internal.h"

#include "common/date.h"

#include <stdio.h>
#include <time.h>

#define DAY_S       86400
#define EXPIRY_US   60000000 /* Interval of the checks for keys that expire. */
#define LEDGER_MS   1000     /* Longest wait for the lines of answers that a kill has cut. */
#define LEDGER_STEP 10

static void on_expiry(void *self, const struct api_key_settings *settings,
                      enum api_key_expiry expiry)
{
    char date[DATE_BYTES];
    (void)self;
    date_text(settings->expires, date);
    if (expiry == API_KEY_EXPIRED)
        log_warn("API key %s has expired (%s): its requests get 401", settings->name, date);
    else
        log_warn("API key %s expires %s: %s", settings->name,
                 expiry == API_KEY_EXPIRES_SOON ? "within a day" : "within 7 days", date);
}

void serve_keys_expiry_log(struct serve *s)
{
    api_keys_time_set(s->keys, time(NULL));
    api_keys_expiry_report(s->keys, on_expiry, s);
}

void serve_keys_turn(struct serve *s, int64_t now_us)
{
    struct gateway_share share = gateway_share(s->gateway);
    api_keys_share_set(s->keys, share.gateways, share.rank);
    api_keys_time_set(s->keys, time(NULL));
    if (now_us < s->keys_expiry_at_us)
        return;
    s->keys_expiry_at_us = now_us + EXPIRY_US;
    api_keys_expiry_report(s->keys, on_expiry, s);
}

static void on_answer(void *self, const char *key, int64_t began_s, uint64_t tokens)
{
    api_keys_day_add(self, key, began_s, tokens);
}

/* Waits until the ledger has the lines of answers that a kill has cut. */
static void ledger_wait(const struct serve *s)
{
    const struct timespec step = {.tv_nsec = LEDGER_STEP * 1000000};
    for (int ms = 0; ms < LEDGER_MS && ledger_counts(s->ledger).waiting > 0; ms += LEDGER_STEP)
        nanosleep(&step, NULL);
}

/* Reads the ledger, and the file that a rotation has made of it. */
void serve_keys_restore(struct serve *s, const char *ledger_path)
{
    char rotated[LIMIT_PATH_BYTES + 2];
    const char *const paths[] = {ledger_path, rotated};
    const int64_t now_s = time(NULL);
    snprintf(rotated, sizeof(rotated), "%s.1", ledger_path);
    api_keys_time_set(s->keys, now_s);
    if (!api_keys_have_quotas(s->keys))
        return;
    ledger_wait(s);
    for (int i = 0; i < 2; i++) {
        struct error error;
        enum status status =
            ledger_read_since(paths[i], now_s - now_s % DAY_S, on_answer, s->keys, &error);
        if (status != ST_OK && status != ST_NOT_FOUND)
            log_warn(
                "the quotas of this day begin at 0, because the usage ledger cannot be read: %s",
                error.text);
    }
}
