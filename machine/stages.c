/* machine_stages: passes reports of the stage processes to the machine's request tables. */
#include "machine/state.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

static void on_done(void *self, uint32_t slot, const struct stage_done *done)
{
    struct machine *m = self;
    machine_batch_results(m, slot, done);
}

static void on_flushed(void *self, uint64_t cookie, enum status status)
{
    struct machine *m = self;
    m->events++;
    m->changed = true;
    prompt_pool_flushed(m->prompts, cookie, status, m->now_us);
}

static void on_target(void *self, uint32_t target, bool up, const char *text)
{
    machine_target_link(self, target, up, text);
}

/* A writer can have connections to several of our processes. It is gone, and can no longer write,
 * when the last one is gone. */
static void on_writer(void *self, const char *name, bool up, const char *text)
{
    struct machine *m = self;
    char machine[LIMIT_NAME_BYTES];
    m->events++;
    m->changed = true;
    machine_of_writer(name, machine);
    if (up)
        token_pool_writer_up(m->tokens, machine);
    else
        token_pool_writer_down(m->tokens, machine, text, m->now_us);
}

struct pipeline_calls machine_pipeline_calls(void)
{
    return (struct pipeline_calls){
        .done = on_done, .flushed = on_flushed, .target = on_target, .writer = on_writer};
}

bool machine_ready(const struct machine *m)
{
    return m->pipeline == NULL || pipeline_ready(m->pipeline);
}

enum status machine_lost(const struct machine *m, struct error *error)
{
    return m->pipeline == NULL ? ST_OK : pipeline_lost(m->pipeline, error);
}
