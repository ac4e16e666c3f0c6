/* fake_steps: see the header. */
#include "tests/server/gateway/fake_steps.h"

#include "tests/check.h"

void fake_run_all(struct fake_cluster *c)
{
    for (int round = 0; round < 200; round++) {
        c->now_us += 10000;
        for (uint32_t i = 0; i < c->fleet->count; i++) {
            struct fake_machine *m = &c->machines[i];
            for (int n = 0; m->transport != NULL && n < FAKE_REQUESTS; n++) {
                struct fake_request *r = &m->requests[n];
                if (r->id == 0)
                    continue;
                fake_work(m, r);
            }
        }
        fake_flush(c);
    }
}

struct fake_request *fake_bring(struct fake_cluster *c, struct fake_client *client,
                                enum moment moment, bool score)
{
    struct fake_machine *p = fake_machine(c, "p0");
    struct fake_machine *t = fake_machine(c, "t0");
    CHECK(fake_submit(c, client, 1000, 20, 12, score) == ST_OK);
    fake_settle(c);
    struct fake_request *r = fake_first_request(t);
    CHECK(r != NULL);
    r->sampling.output_tokens_min = r->sampling.output_tokens_max; /* no end by chance */
    if (moment == AT_RESERVE)
        return r;
    fake_reserved(t, r);
    fake_flush(c);
    struct fake_request *prompt = fake_prompt_side(p, r->id);
    CHECK(prompt != NULL);
    prompt->sampling.output_tokens_min = prompt->sampling.output_tokens_max;
    if (moment == AT_PROMPT)
        return r;
    fake_sample(p, prompt);
    fake_flush(c);
    CHECK(client->answered == 1);
    if (moment == AT_FIRST_TOKEN)
        return r;
    fake_hand_over(p, prompt);
    for (int i = 0; i < 4; i++)
        fake_decode(t, r);
    fake_flush(c);
    CHECK(client->answered == 5);
    return r;
}

void fake_outbox_send(struct fake_cluster *c, struct fake_machine *m)
{
    while (m->outbox_count > 0)
        fake_send_one(m);
    fake_settle(c);
}
