/* registration: a cycle of calls.
 *
 *     grant a lease
 *           ▼
 *     put the entry, if there is none ◀────────────────────┐
 *           ▼                                              │
 *     wait a third of the lease ────▶ keep the lease alive ┘
 *
 * The put is repeated in each cycle (it changes nothing while the entry is ours), so an entry that
 * was deleted is soon back. If an entry with our address exists, it belongs to a process that died
 * before us, because now we listen there: it is overwritten. An entry with another address belongs
 * to a machine that is alive, or whose lease has not ended: we wait. If our lease has ended, the
 * cycle begins again. */
#include "membership/registration.h"

#include "membership/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_US 200000
#define RETRY_MAX_US   5000000
#define OCCUPIED_US    1000000 /* How often an entry of another process is checked. */

enum step { STEP_GRANT, STEP_PUT, STEP_TAKE, STEP_KEEP, STEP_REVOKE, STEP_LEFT };

struct registration {
    struct registration_options options;
    struct member member;
    struct etcd *etcd;
    struct etcd_call *call; /* NULL = `step` begins at at_us. */
    enum step step;
    int64_t at_us;
    int64_t retry_us;
    int64_t lease; /* 0 = none. */
    char key[MEMBER_KEY_BYTES];
    char *value;
    bool leaving;
    bool reported;
    bool registered;
    char text[700]; /* The text reported last. */
};

/* ---- reports to the owner ---- */

static void state_report(struct registration *r, bool registered, const char *text)
{
    if (r->reported && r->registered == registered && strcmp(r->text, text) == 0)
        return;
    r->reported = true;
    r->registered = registered;
    snprintf(r->text, sizeof(r->text), "%s", text);
    r->options.state_changed(r->options.self, registered, r->text);
}

static void step_set(struct registration *r, enum step step, int64_t wait_us)
{
    r->step = step;
    r->at_us = clock_now_us(r->options.clock) + wait_us;
}

/* Repeats the step later, with growing pauses. */
static void step_failed(struct registration *r, const char *why)
{
    r->call = NULL;
    if (r->step == STEP_REVOKE) {
        r->step = STEP_LEFT;
        return;
    }
    state_report(r, false, why);
    step_set(r, r->step == STEP_TAKE ? STEP_PUT : r->step, r->retry_us);
    r->retry_us = 2 * r->retry_us < RETRY_MAX_US ? 2 * r->retry_us : RETRY_MAX_US;
}

/* ---- the calls ---- */

static json_t *number_text(int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)number);
    return json_string(text);
}

static json_t *key_json(const struct registration *r)
{
    return etcd_text_encode(r->key, strlen(r->key));
}

static json_t *put_json(const struct registration *r)
{
    return json_pack("{s:o, s:o, s:o}", "key", key_json(r), "value",
                     etcd_text_encode(r->value, strlen(r->value)), "lease", number_text(r->lease));
}

/* Puts the entry if there is none, else reads the existing one. */
static json_t *claim_json(const struct registration *r)
{
    return json_pack("{s:[{s:s, s:s, s:o, s:s}], s:[{s:o}], s:[{s:{s:o}}]}", "compare", "target",
                     "VERSION", "result", "EQUAL", "key", key_json(r), "version", "0", "success",
                     "requestPut", put_json(r), "failure", "requestRange", "key", key_json(r));
}

static void on_granted(void *self, json_t *reply, const char *why)
{
    struct registration *r = self;
    if (reply == NULL || (r->lease = etcd_number_read(reply, "ID")) == 0) {
        step_failed(r, why != NULL ? why : "etcd: a lease without ID");
        return;
    }
    r->call = NULL;
    step_set(r, STEP_PUT, 0);
}

static void registered(struct registration *r)
{
    char text[400];
    snprintf(text, sizeof(text), "etcd at %s, key %s", etcd_endpoint(r->etcd), r->key);
    r->retry_us = RETRY_FIRST_US;
    state_report(r, true, text);
    step_set(r, STEP_KEEP, r->options.lease_s * 1000000ll / 3);
}

/* Handles an existing entry: ours, our dead predecessor's, or another machine's. */
static void entry_compare(struct registration *r, const json_t *kv)
{
    struct member other;
    struct error error;
    char text[700];
    if (etcd_number_read(kv, "lease") == r->lease) {
        registered(r);
        return;
    }
    char *value = etcd_text_decode(json_object_get(kv, "value"));
    enum status status =
        value != NULL ? member_decode(r->member.name, value, &other, &error) : ST_INVALID;
    free(value);
    if (status == ST_NO_MEMORY) { /* The entry may be another machine's. */
        step_failed(r, "etcd: no memory for the entry");
        return;
    }
    if (status != ST_OK || strcmp(other.address, r->member.address) == 0) {
        step_set(r, STEP_TAKE, 0);
        return;
    }
    snprintf(text, sizeof(text),
             "another machine named %s is registered, at %s: not registered before its entry (%s) "
             "is gone",
             r->member.name, other.address, r->key);
    state_report(r, false, text);
    step_set(r, STEP_PUT, OCCUPIED_US);
}

/* Also called when the lease has ended, which etcd reports as an error. */
static void put_failed(struct registration *r, const char *why)
{
    bool lease_gone = strstr(why, "lease not found") != NULL;
    step_failed(r, lease_gone ? "etcd: its lease has ended before the entry was put" : why);
    if (lease_gone)
        step_set(r, STEP_GRANT, 0);
}

static void on_put(void *self, json_t *reply, const char *why)
{
    struct registration *r = self;
    if (reply == NULL) {
        put_failed(r, why);
        return;
    }
    r->call = NULL;
    if (r->step == STEP_TAKE || json_is_true(json_object_get(reply, "succeeded"))) {
        registered(r);
        return;
    }
    json_t *response = json_array_get(json_object_get(reply, "responses"), 0);
    json_t *range = json_object_get(response, "response_range");
    json_t *kv = json_array_get(
        json_object_get(range != NULL ? range : json_object_get(response, "responseRange"), "kvs"),
        0);
    if (kv != NULL)
        entry_compare(r, kv);
    /* The entry was deleted in the same moment. */
    else
        step_set(r, STEP_PUT, OCCUPIED_US);
}

static void on_kept(void *self, json_t *reply, const char *why)
{
    struct registration *r = self;
    if (reply == NULL) {
        step_failed(r, why);
        return;
    }
    r->call = NULL;
    if (etcd_number_read(json_object_get(reply, "result"), "TTL") > 0) {
        step_set(r, STEP_PUT, 0);
        return;
    }
    state_report(r, false, "etcd: the lease has ended; registers again");
    step_set(r, STEP_GRANT, 0);
}

static void on_revoked(void *self, json_t *reply, const char *why)
{
    struct registration *r = self;
    (void)reply, (void)why; /* If etcd did not answer, the lease ends by itself. */
    r->call = NULL;
    r->step = STEP_LEFT;
}

static void step_begin(struct registration *r)
{
    char lease_s[16];
    snprintf(lease_s, sizeof(lease_s), "%u", r->options.lease_s);
    json_t *id = json_pack("{s:o}", "ID", number_text(r->lease));
    switch (r->step) {
    case STEP_GRANT:
        r->call = etcd_call_begin(r->etcd, "/v3/lease/grant",
                                  json_pack("{s:s, s:s}", "TTL", lease_s, "ID", "0"), NULL,
                                  on_granted, r);
        break;
    case STEP_PUT:
        r->call = etcd_call_begin(r->etcd, "/v3/kv/txn", claim_json(r), NULL, on_put, r);
        break;
    case STEP_TAKE:
        r->call = etcd_call_begin(r->etcd, "/v3/kv/put", put_json(r), NULL, on_put, r);
        break;
    case STEP_KEEP:
        r->call =
            etcd_call_begin(r->etcd, "/v3/lease/keepalive", json_incref(id), NULL, on_kept, r);
        break;
    case STEP_REVOKE:
        r->call =
            etcd_call_begin(r->etcd, "/v3/lease/revoke", json_incref(id), NULL, on_revoked, r);
        break;
    case STEP_LEFT:
        break;
    }
    json_decref(id);
    if (r->call == NULL && r->step != STEP_LEFT)
        step_failed(r, "etcd: out of memory");
}

/* ---- life ---- */

enum status registration_open(const struct registration_options *options, struct registration **out,
                              struct error *error)
{
    struct registration *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    r->options = *options;
    r->member = *options->member;
    r->retry_us = RETRY_FIRST_US;
    member_key(options->prefix, options->member->name, r->key);
    r->value = member_encode(options->member);
    enum status status = r->value != NULL
                             ? etcd_open(options->config, options->clock, &r->etcd, error)
                             : error_set(error, ST_NO_MEMORY, "etcd: out of memory");
    if (status != ST_OK) {
        registration_close(r);
        return status;
    }
    *out = r;
    return ST_OK;
}

void registration_close(struct registration *r)
{
    if (r == NULL)
        return;
    etcd_close(r->etcd);
    free(r->value);
    free(r);
}

int registration_fd(const struct registration *r)
{
    return etcd_fd(r->etcd);
}

int registration_turn(struct registration *r)
{
    int timeout_ms = etcd_turn(r->etcd);
    if (r->call != NULL || r->step == STEP_LEFT)
        return timeout_ms;
    int64_t left_us = r->at_us - clock_now_us(r->options.clock);
    if (left_us > 0) {
        int left_ms = (int)((left_us + 999) / 1000);
        return timeout_ms >= 0 && timeout_ms < left_ms ? timeout_ms : left_ms;
    }
    step_begin(r);
    return etcd_turn(r->etcd);
}

void registration_remove(struct registration *r)
{
    if (r->leaving)
        return;
    r->leaving = true;
    etcd_call_cancel(r->call);
    r->call = NULL;
    step_set(r, r->lease != 0 ? STEP_REVOKE : STEP_LEFT, 0);
}

bool registration_removed(const struct registration *r)
{
    return r->step == STEP_LEFT;
}
