/* Goal: for any behaviour of prompt machines, gateways and the clock, no block that a prompt
 * machine may still write into belongs to another request, no block has two owners, no write by
 * message is accepted into another request's block, and in the end every block is free.
 *
 * Method: an input is a list of events, two bytes each, for a real token pool with its scheduler,
 * block pool and prefix cache; time is a number. Three prompt machines are modelled: what each
 * knows, over which connections each of its processes may still write, whether a process is
 * stopped, and which messages wait for it. p0 is one process, p1 and p2 have two. They behave as
 * real ones do: a process writes for a request from PREFILL on, until its flush or the end of its
 * connection, and a machine handles the CANCELs that it gets when it connects before any PREFILL.
 * The input decides when PREFILL arrives. After each event, all blocks that a process may write are
 * compared with the pool. The draft model is modelled as a memory of the tokens whose KV a block
 * would have: whenever it computes, its blocks must have exactly the request's tokens. In half of
 * the inputs the draft model is a draft layer: a final vector says which model made it for which
 * token, and the KV of known tokens must come from the machine's model. */
#include "tests/check.h"
#include "tests/fuzz.h"
#include "token_pool/token_drafts.h"
#include "token_pool/token_state.h"

#include <string.h>

#define BLOCKS       40
#define BLOCK_TOKENS 4
#define CONTEXT      64
#define FIRST_SLOT   16
#define SLOTS        16
#define MACHINES     3
#define PROCESSES    2 /* Most processes of a machine: its head and a stage process. */
#define JOBS         24
/* Links of one process that the process or the pool still considers open. */
#define LINKS      12
#define EVENTS_MAX 600
#define ASKED_MAX  (4 * TOKEN_UNCONFIRMED_MAX)
/* The draft model: too few blocks for all requests, and a token less than the vocabulary. */
#define DRAFT_BLOCKS 24
#define DRAFT_VOCAB  9
#define FINAL_FLOATS 2 /* Position of the token that has the vector, and one of the next two. */
#define OF_MODEL     1.0f
#define OF_LAYER     2.0f

/* A request as the gateway and its prompt machine see it. */
struct job {
    struct message_request name; /* id 0 = unused. */
    uint32_t machine;            /* MACHINES = the token machine itself. */
    uint32_t prompt_tokens;
    bool prefilled; /* The gateway has sent PREFILL. */
    bool known;     /* The machine has the request, which has not ended there. */
    /* The machine has told the pool that it will not write for the request. */
    bool withdrawn;
    bool stopping;           /* The request was cancelled, and its writes have not ended. */
    bool writing[PROCESSES]; /* The process may write, over link `over`. */
    uint64_t over[PROCESSES];
    uint32_t block_count;
    kv_block_id blocks[CONTEXT / BLOCK_TOKENS];
};

struct link_end {
    uint64_t number; /* 0 = unused. */
    bool open;       /* The process considers the link open. */
    /* The pool considers the link up. If both are false, the pool is told that writes have
     * ended. */
    bool up;
};

struct process {
    bool stopped;
    struct link_end links[LINKS];
};

enum letter_kind { LETTER_PREFILL, LETTER_CANCEL };

struct letter { /* A message from the gateway to a machine. */
    enum letter_kind kind;
    uint32_t job;
    struct message_request name;
};

struct machine {
    struct process processes[PROCESSES];
    uint32_t process_count;
    uint32_t letter_count;
    struct letter letters[4 * JOBS];
    uint32_t asked_count; /* CANCELs of the token machine. */
    struct message_request asked[ASKED_MAX];
};

static struct kv_pool *kv;
static struct kv_prefix *prefix;
static struct sched_machine *sched;
static struct token_pool *pool;
static struct sched_drafts drafts;
static uint64_t drafted;                              /* Drafted tokens of all steps. */
static uint32_t draft_kv[DRAFT_BLOCKS][BLOCK_TOKENS]; /* The token whose KV is there. */
/* The draft layer has computed the KV from its own final vector. */
static bool draft_kv_own[DRAFT_BLOCKS][BLOCK_TOKENS];
static uint32_t final_floats; /* 0 = the draft model is not a draft layer. */
static struct token_draft_job draft_job;
static bool draft_runs;      /* The draft model computes draft_job. */
static uint64_t draft_steps; /* Tokens that the draft model has generated. */
static struct job jobs[JOBS];
static struct machine machines[MACHINES];
static int64_t now_us;
static uint64_t next_id, next_link;
static char gateway_mark, head_marks[MACHINES];

static const char *const machine_names[MACHINES + 1] = {"p0", "p1", "p2", "t0"};
static const char *const process_names[MACHINES][PROCESSES] = {
    {"p0", "p0/0"}, {"p1", "p1/0"}, {"p2", "p2/0"}};

static struct job *job_of(const struct message_request *name)
{
    for (uint32_t i = 0; i < JOBS; i++)
        if (jobs[i].name.id != 0 && jobs[i].name.id == name->id &&
            jobs[i].name.generation == name->generation)
            return &jobs[i];
    return NULL;
}

static bool job_writes(const struct job *job)
{
    return job->writing[0] || job->writing[1];
}

static void letter_add(uint32_t machine, enum letter_kind kind, const struct job *job)
{
    struct machine *m = &machines[machine];
    CHECK(m->letter_count < 4 * JOBS);
    m->letters[m->letter_count++] =
        (struct letter){.kind = kind, .job = (uint32_t)(job - jobs), .name = job->name};
}

/* The gateway cancels the request, or learns that the request has ended. */
static void gateway_forgets(struct job *job)
{
    if (job->machine < MACHINES && job->prefilled)
        letter_add(job->machine, LETTER_CANCEL, job);
    job->prefilled = false;
}

/* ---- what the pool says ---- */

static void on_send(void *self, struct transport_peer *peer, const struct message *message)
{
    (void)self;
    struct job *job;
    if (message->kind == MESSAGE_CANCEL) {
        for (uint32_t i = 0; i < MACHINES; i++)
            if (peer == (struct transport_peer *)&head_marks[i]) {
                CHECK(machines[i].asked_count < ASKED_MAX);
                machines[i].asked[machines[i].asked_count++] = message->cancel.request;
            }
        return;
    }
    CHECK(peer == (struct transport_peer *)&gateway_mark);
    if (message->kind == MESSAGE_RESERVED) {
        job = job_of(&message->reserved.request);
        CHECK(job != NULL && message->reserved.block_count <= CONTEXT / BLOCK_TOKENS);
        job->block_count = message->reserved.block_count;
        memcpy(job->blocks, message->reserved.blocks, job->block_count * sizeof(job->blocks[0]));
        job->prefilled = true;
        if (job->machine < MACHINES)
            letter_add(job->machine, LETTER_PREFILL, job);
        else
            job->known = job->writing[0] = true;
    } else if (message->kind == MESSAGE_FAILED &&
               (job = job_of(&message->failed.request)) != NULL) {
        gateway_forgets(job);
    } else if (message->kind == MESSAGE_PREEMPTED &&
               (job = job_of(&message->preempted.request)) != NULL) {
        gateway_forgets(job);
    }
}

static void on_send_tokens(void *self, struct transport_peer *peer,
                           const struct message_buffer *tokens)
{
    (void)self, (void)peer, (void)tokens;
}

static bool on_local_writes(void *self, const struct message_request *name)
{
    (void)self;
    const struct job *job = job_of(name);
    return job != NULL && job->machine == MACHINES && job->known;
}

/* ---- what must hold ---- */

static const struct token_request *request_of(const struct message_request *name)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        if (pool->requests[i].state != TOKEN_FREE && pool->requests[i].attempt.id == name->id &&
            pool->requests[i].attempt.generation == name->generation)
            return &pool->requests[i];
    return NULL;
}

/* True if the request has taken the block and has not given it to the prefix cache. */
static bool owns(const struct token_request *request, kv_block_id block)
{
    return request != NULL && kv_pool_owns(kv, request->owner, block);
}

static void check_all(void)
{
    struct error error;
    uint8_t owners[BLOCKS] = {0};
    CHECKF(kv_pool_check(kv, &error), "%s", error.text);
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct token_request *request = &pool->requests[i];
        if (request->state == TOKEN_FREE || request->state == TOKEN_WAITING)
            continue;
        const uint32_t count = token_blocks_of(pool, request)->count;
        for (uint32_t b = request->tables.cached_spans; b < count; b++)
            if (!kv_pool_owns(kv, KV_PREFIX_OWNER, request->tables.ids[b]))
                CHECKF(++owners[request->tables.ids[b]] == 1, "block %u has two owners",
                       request->tables.ids[b]);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct job *job = &jobs[i];
        if (job->name.id == 0 || !job_writes(job))
            continue;
        const struct token_request *request = request_of(&job->name);
        for (uint32_t b = 0; b < job->block_count; b++)
            CHECKF(owns(request, job->blocks[b]) &&
                       (request->state == TOKEN_RESERVED || request->state == TOKEN_QUARANTINED),
                   "%s may write into block %u, which is no longer of its request",
                   machine_names[job->machine], job->blocks[b]);
    }
}

/* Tries a write by message. Any process may try any request and any blocks. */
static void try_write(uint8_t a, uint8_t b)
{
    const struct job *job = &jobs[a % JOBS];
    const char *process = process_names[b % MACHINES][a / JOBS % PROCESSES];
    kv_block_id first = (kv_block_id)(a * 7u + b) % BLOCKS;
    uint32_t count = 1 + b / 64;
    if (!token_pool_request_awaits(pool, &job->name, process, first, count))
        return;
    const struct token_request *request = request_of(&job->name);
    CHECK(request->state == TOKEN_RESERVED && job->machine == b % MACHINES);
    for (uint32_t i = 0; i < count; i++)
        CHECK(owns(request, first + i));
}

/* ---- the prompt machines ---- */

static struct token_link link_at(uint32_t machine, uint32_t process, uint64_t number)
{
    /* A machine's second process is connected to a stage process of the token machine. */
    (void)machine;
    return (struct token_link){.process = process, .number = number};
}

static struct link_end *open_link(struct process *process)
{
    for (uint32_t i = 0; i < LINKS; i++)
        if (process->links[i].number != 0 && process->links[i].open)
            return &process->links[i];
    return NULL;
}

/* True if every process of the machine considers itself connected, so that its target is up. */
static bool target_up(uint32_t machine)
{
    for (uint32_t i = 0; i < machines[machine].process_count; i++)
        if (open_link(&machines[machine].processes[i]) == NULL)
            return false;
    return true;
}

static void aborted(struct job *job)
{
    struct link_end *link = open_link(&machines[job->machine].processes[0]);
    job->known = job->stopping = false;
    if (link != NULL && link->up)
        token_pool_kv_aborted(pool, &job->name, now_us);
}

/* A process has flushed its writes. When all processes have, the head reports it. */
static void job_flushed(struct job *job, uint32_t process, bool ready)
{
    if (!job->known || !job->writing[process])
        return;
    job->writing[process] = false;
    if (job_writes(job))
        return;
    if (job->machine == MACHINES || ready) {
        const struct message_kv_ready done = {
            .request = job->name, .prompt_tokens = job->prompt_tokens, .first_token = 3};
        struct link_end *link =
            job->machine < MACHINES ? open_link(&machines[job->machine].processes[0]) : NULL;
        bool stopping = job->stopping;
        job->known = job->stopping = false;
        if (job->machine < MACHINES && (link == NULL || !link->up))
            return;
        if (stopping)
            token_pool_kv_aborted(pool, &job->name, now_us);
        else
            token_pool_kv_ready(pool, &done, now_us);
    } else {
        aborted(job);
    }
}

/* The machine learns that its target is down, and drops all requests for the target. Processes that
 * have not learned this may write on. */
static void target_down(uint32_t machine)
{
    for (uint32_t i = 0; i < JOBS; i++)
        if (jobs[i].machine == machine && jobs[i].name.id != 0)
            jobs[i].known = jobs[i].stopping = false;
}

/* The process ends its link, and thereby its writes. */
static void link_close(uint32_t machine, uint32_t process, struct link_end *link)
{
    const struct token_link id = link_at(machine, process, link->number);
    CHECK(link->open);
    link->open = false;
    for (uint32_t i = 0; i < JOBS; i++)
        if (jobs[i].machine == machine && jobs[i].over[process] == link->number)
            jobs[i].writing[process] = false;
    target_down(machine);
    if (link->up)
        token_pool_writer_down(pool, id, false, "closed by the peer", now_us);
    else
        token_pool_writes_ended(pool, id, now_us);
    link->number = 0;
}

static void letter_take(uint32_t machine)
{
    struct machine *m = &machines[machine];
    if (m->letter_count == 0 || m->processes[0].stopped)
        return;
    const struct letter letter = m->letters[0];
    memmove(m->letters, m->letters + 1, --m->letter_count * sizeof(m->letters[0]));
    struct job *job = &jobs[letter.job];
    if (job->name.id != letter.name.id || job->name.generation != letter.name.generation)
        return;
    if (letter.kind == LETTER_PREFILL && target_up(machine) && !job->withdrawn) {
        job->known = true;
        for (uint32_t i = 0; i < m->process_count; i++) {
            /* The head of a machine with a stage process writes nothing itself. */
            job->writing[i] = m->process_count == 1 || i > 0;
            job->over[i] = open_link(&m->processes[i])->number;
        }
    } else if (letter.kind == LETTER_CANCEL && job->known) {
        job->stopping = true;
    }
}

static void asked_take(uint32_t machine)
{
    struct machine *m = &machines[machine];
    if (m->asked_count == 0 || m->processes[0].stopped)
        return;
    const struct message_request name = m->asked[--m->asked_count];
    struct job *job = job_of(&name);
    struct link_end *link = open_link(&m->processes[0]);
    if (job != NULL && job->known) {
        job->stopping = true;
        return;
    }
    if (job != NULL)
        job->withdrawn = true;
    if (link != NULL && link->up)
        token_pool_kv_aborted(pool, &name, now_us);
}

static void connect_process(uint32_t machine, uint32_t process)
{
    struct machine *m = &machines[machine];
    struct process *p = &m->processes[process];
    if (process >= m->process_count || p->stopped || open_link(p) != NULL)
        return;
    /* A head tells its processes to connect once it is connected itself. */
    if (m->processes[0].stopped || (process > 0 && open_link(&m->processes[0]) == NULL))
        return;
    for (uint32_t i = 0; i < LINKS; i++) {
        if (p->links[i].number != 0)
            continue;
        p->links[i] = (struct link_end){.number = ++next_link, .open = true, .up = true};
        token_pool_writer_up(pool, link_at(machine, process, next_link),
                             process_names[machine][process],
                             process == 0 ? (struct transport_peer *)&head_marks[machine] : NULL);
        /* They arrive before the head knows the layers. */
        while (process == 0 && m->asked_count > 0)
            asked_take(machine);
        return;
    }
}

/* The token machine gives up a silent connection. */
static void silence(uint32_t machine, uint32_t process)
{
    struct link_end *link = open_link(&machines[machine].processes[process]);
    if (link == NULL || !link->up)
        return;
    link->up = false;
    token_pool_writer_down(pool, link_at(machine, process, link->number), true, "silent", now_us);
}

/* The process closes its connection: it reads that the other side has closed, or has another
 * reason. */
static void process_closes(uint32_t machine, uint32_t process)
{
    struct process *p = &machines[machine].processes[process];
    struct link_end *link = open_link(p);
    if (link != NULL && !p->stopped)
        link_close(machine, process, link);
}

static void machine_dies(uint32_t machine)
{
    struct machine *m = &machines[machine];
    for (uint32_t i = 0; i < PROCESSES; i++) {
        struct link_end *link = open_link(&m->processes[i]);
        if (link != NULL)
            link_close(machine, i, link);
        m->processes[i].stopped = false;
    }
    m->letter_count = m->asked_count = 0;
}

/* ---- the gateway, time, decodes ---- */

static void reserve(uint8_t a, uint8_t b)
{
    struct job *job = NULL;
    for (uint32_t i = 0; i < JOBS && job == NULL; i++)
        if (jobs[i].name.id == 0 || (!jobs[i].prefilled && !jobs[i].known &&
                                     !job_writes(&jobs[i]) && request_of(&jobs[i].name) == NULL))
            job = &jobs[i];
    if (job == NULL)
        return;
    *job = (struct job){.name = {.id = ++next_id, .generation = a % 3u},
                        .machine = b % (MACHINES + 1),
                        .prompt_tokens = 1 + a % (CONTEXT - 20u)};
    uint32_t prompt[CONTEXT];
    for (uint32_t i = 0; i < CONTEXT; i++) /* Few different tokens, so that prefixes are found. */
        prompt[i] = i < 8 ? 1 : b / 64;
    struct message_reserve message = {
        .request = job->name,
        .prompt_tokens = job->prompt_tokens,
        .prompt_count = job->prompt_tokens,
        .prefix_cache = true,
        .prompt = prompt,
        .sampling = {.top_p = 1, .logprobs = -1, .output_tokens_max = 1 + b % 19u},
    };
    snprintf(message.prompt_machine, sizeof(message.prompt_machine), "%s",
             machine_names[job->machine]);
    token_pool_reserve(pool, (struct transport_peer *)&gateway_mark, &message, now_us);
    if (request_of(&job->name) == NULL)
        job->name.id = 0;
}

static void cancel(struct job *job)
{
    if (job->name.id == 0)
        return;
    token_pool_cancel(pool, &job->name, job->prefilled, now_us);
    if (job->machine == MACHINES && job->known) {
        job->known = job->writing[0] = false;
        token_pool_kv_aborted(pool, &job->name, now_us);
    }
    gateway_forgets(job);
}

/* ---- the draft model ---- */

/* The draft model reads the KV of the token at `at`; of the item's tokens, it computes it first. */
static void draft_compute(const struct token_draft_item *item, const struct token_request *request,
                          uint32_t at)
{
    const uint32_t in_kv = at - (item->position - item->kv_position);
    const kv_block_id block = item->blocks[in_kv / BLOCK_TOKENS];
    uint32_t *kv_token = &draft_kv[block][in_kv % BLOCK_TOKENS];
    bool *own = &draft_kv_own[block][in_kv % BLOCK_TOKENS];
    if (at >= item->position) {
        const uint32_t row = at - item->position;
        const float *final = final_floats > 0 ? item->finals + row * final_floats : NULL;
        *kv_token = item->tokens[row];
        *own = final_floats > 0 && final[1] == OF_LAYER;
        CHECK(*kv_token < DRAFT_VOCAB);
        CHECKF(final_floats == 0 || final[0] == (float)at, "token %u has the vector of %g", at,
               (double) final[0]);
    }
    CHECKF(*kv_token == request->tokens[at], "the draft model reads another token at %u", at);
    CHECKF(*own == (final_floats > 0 && at >= request->prompt_tokens + request->generated),
           "the KV at %u comes from the wrong final vector", at);
}

static void draft_begin(uint32_t catch_up_rows)
{
    if (draft_runs || !token_pool_drafts_next(pool, catch_up_rows, &draft_job))
        return;
    draft_runs = true;
    CHECK(draft_job.catch_up_rows <= catch_up_rows);
    for (uint32_t i = 0; i < draft_job.item_count; i++) {
        const struct token_draft_item *item = &draft_job.items[i];
        const struct token_request *request = token_request_of(pool, item->slot);
        const uint32_t known =
            request->prompt_tokens + request->generated + request->draft_generated_count;
        const uint32_t end = item->position + item->row_count;
        CHECK(request->owner == item->owner && end <= known);
        CHECK(item->sampling == NULL || end == known);
        CHECK(final_floats > 0 || item->kv_position == item->position);
        for (uint32_t at = item->position - item->kv_position; at < end; at++)
            draft_compute(item, request, at);
    }
}

static void draft_end(void)
{
    uint32_t ids[LIMIT_BATCH_SEQUENCES];
    float finals[LIMIT_BATCH_SEQUENCES * FINAL_FLOATS];
    if (!draft_runs)
        return;
    draft_runs = false;
    for (uint32_t i = 0; i < draft_job.item_count; i++) { /* 11 is not in the vocabulary. */
        ids[i] = (now_us + i) % 13 == 0 ? 11 : 1;
        draft_steps += draft_job.items[i].sampling != NULL ? 1 : 0;
        finals[i * FINAL_FLOATS] =
            (float)(draft_job.items[i].position + draft_job.items[i].row_count);
        finals[i * FINAL_FLOATS + 1] = OF_LAYER;
    }
    if (draft_job.catch_up_rows == 0)
        sched_drafts_step_add(&drafts.model, draft_job.item_count, 100);
    token_pool_drafts_done(pool, &draft_job, ids, finals);
}

static void decode(bool all)
{
    static struct sched_batch batch;
    if (draft_runs)
        return;
    token_pool_answers_grow(pool);
    if (!sched_machine_batch_next(sched, 0, 0, &batch))
        return;
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct token_decode row;
        token_pool_decode_begin(pool, batch.items[i].slot, now_us, &row);
        /* The step writes the KV of its input token, and of the drafted tokens. */
        for (uint32_t at = 0; at < batch.items[i].token_count; at++) {
            const kv_block_id block = row.blocks[(row.position + at) / BLOCK_TOKENS];
            CHECK(!kv_pool_owns(kv, KV_PREFIX_OWNER, block));
            drafted += at > 0 ? 1 : 0;
        }
    }
    sched_machine_batch_done(sched, batch.index);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        const struct token_request *request = token_request_of(pool, batch.items[i].slot);
        struct message_token tokens[1 + LIMIT_DRAFT_TOKENS];
        const uint32_t count = batch.items[i].token_count;
        const uint32_t known = request->prompt_tokens + request->generated;
        float finals[(1 + LIMIT_DRAFT_TOKENS) * FINAL_FLOATS];
        for (uint32_t at = 0; at < count; at++) {
            finals[at * FINAL_FLOATS] = (float)(known + at);
            finals[at * FINAL_FLOATS + 1] = OF_MODEL;
            bool last = all || request->generated + at + 1 >= request->output_limit;
            /* Mostly the token that repeats, which is what a draft has. */
            const uint32_t other = now_us % 5 == 0 ? DRAFT_VOCAB : 3;
            tokens[at] = (struct message_token){.id = (now_us + at) % 7 == 0 ? other : 1,
                                                .finish = last ? FINISH_LENGTH : FINISH_NONE};
        }
        sched_drafts_step_add(&drafts.steps, batch.row_count, 1000);
        token_pool_decode_done(pool, batch.items[i].slot, tokens, finals, count, now_us);
    }
    token_pool_tokens_send(pool);
}

static void event(uint8_t what, uint8_t a)
{
    const uint32_t machine = a % MACHINES;
    const uint32_t process = a / MACHINES % machines[machine].process_count;
    struct job *job = &jobs[a % JOBS];
    switch (what % 20) {
    case 0:
    case 1:
        reserve((uint8_t)(what / 16 * 11 + a), a);
        break;
    case 2:
    case 3:
        token_pool_answers_grow(pool);
        token_pool_waiting_grant(pool, now_us);
        break;
    case 4:
        cancel(job);
        break;
    case 5:
    case 6:
        letter_take(machine);
        break;
    case 7:
        asked_take(machine);
        break;
    case 8:
        connect_process(machine, process);
        break;
    case 9:
        silence(machine, process);
        break;
    case 10:
        process_closes(machine, process);
        break;
    case 11:
        if (a % 5 == 0)
            machine_dies(machine);
        break;
    case 12:
        machines[machine].processes[process].stopped = a / 16 % 2 != 0;
        break;
    case 13:
        if (job->name.id != 0 &&
            (job->machine == MACHINES || !machines[job->machine].processes[a / JOBS % 2].stopped))
            job_flushed(job, a / JOBS % 2, !job->stopping);
        break;
    case 14:
        now_us += (int64_t)1 << a % 32;
        token_pool_leases_check(pool, now_us);
        break;
    case 15:
        decode(a % 8 == 0);
        break;
    case 16:
        try_write(a, what);
        break;
    case 17:
        draft_begin(a % 64);
        break;
    case 18:
        draft_end();
        break;
    default:
        if (a % 16 == 0) {
            token_pool_gateway_gone(pool, (struct transport_peer *)&gateway_mark, now_us);
            for (uint32_t i = 0; i < JOBS; i++)
                cancel(&jobs[i]);
        } else {
            token_pool_deadlock_break(pool, 0, now_us);
        }
    }
}

/* ---- the run ---- */

static void open_all(void)
{
    const struct sched_machine_options options = {.slot_count = FIRST_SLOT + SLOTS,
                                                  .prompt_batch_tokens = 64,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = 8,
                                                  .batches_in_flight = 1};
    memset(jobs, 0, sizeof(jobs));
    memset(machines, 0, sizeof(machines));
    now_us = 1000;
    next_id = next_link = 0;
    for (uint32_t i = 0; i < MACHINES; i++)
        machines[i].process_count = i == 0 ? 1 : 2;
    draft_runs = false;
    CHECK(kv_pool_open(BLOCKS, &kv) == ST_OK &&
          kv_prefix_open(kv, &(struct layer_groups){0}, BLOCK_TOKENS, &prefix) == ST_OK &&
          sched_machine_open(&options, &sched) == ST_OK);
    const struct token_pool_options tokens = {
        .name = "t0",
        .sched = sched,
        .kv = kv,
        .prefix = prefix,
        .memory = {.block_count = BLOCKS,
                   .block_tokens = BLOCK_TOKENS,
                   .context_tokens = CONTEXT,
                   .draft_tokens = 4,
                   .first_slot = FIRST_SLOT,
                   .slot_count = SLOTS,
                   .growth_tokens = 4,
                   .growth_reserve_percent = 10,
                   .preemptions_max = 3},
        .vocab = 10,
        .drafts = &drafts,
        .draft_model = {.vocab = DRAFT_VOCAB,
                        .context_tokens = CONTEXT - 10,
                        .block_count = DRAFT_BLOCKS,
                        .block_tokens = BLOCK_TOKENS,
                        .rows_max = 80,
                        .step_rows = 8,
                        .final_floats = final_floats},
        .calls = {.send = on_send, .send_tokens = on_send_tokens, .local_writes = on_local_writes},
    };
    CHECK(token_pool_open(&tokens, &pool) == ST_OK);
}

/* All processes continue, all requests are cancelled, and time passes: every block must be free. */
static void finish(void)
{
    for (uint32_t i = 0; i < MACHINES; i++)
        for (uint32_t k = 0; k < PROCESSES; k++)
            machines[i].processes[k].stopped = false;
    for (uint32_t i = 0; i < JOBS; i++)
        cancel(&jobs[i]);
    draft_end();
    decode(true);
    for (uint32_t i = 0; i < MACHINES; i++) {
        while (machines[i].letter_count > 0)
            letter_take(i);
        for (uint32_t k = 0; k < machines[i].process_count; k++)
            process_closes(i, k);
        check_all();
    }
    for (int second = 0; second < 130; second++) {
        now_us += 1000000;
        token_pool_leases_check(pool, now_us);
        decode(true);
        check_all();
    }
    CHECKF(token_pool_count(pool) == 0, "%u requests are left", token_pool_count(pool));
    CHECK(draft_seats_blocks_free(pool->draft_seats) == DRAFT_BLOCKS);
    CHECK(kv_pool_state_count(kv, KV_FREE) + kv_pool_state_count(kv, KV_CACHED) == BLOCKS);
    token_pool_close(pool);
    kv_prefix_close(prefix);
    sched_machine_close(sched);
    CHECK(kv_pool_state_count(kv, KV_FREE) == BLOCKS);
    kv_pool_close(kv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    final_floats = size > 0 && data[size - 1] % 2 != 0 ? FINAL_FLOATS : 0;
    open_all();
    for (size_t at = 0; at + 1 < size && at / 2 < EVENTS_MAX; at += 2) {
        event(data[at], data[at + 1]);
        check_all();
    }
    finish();
    return 0;
}

/* The first input is a run without faults, then come a stop during a write, and random events. */
size_t fuzz_seed(unsigned index, uint8_t *buffer, size_t capacity)
{
    static const uint8_t whole[] = {8, 0, 0, 0, 2, 0, 5, 0, 13, 0, 15, 1, 15, 1, 15, 8};
    static const uint8_t stop[] = {8, 0, 0, 0, 2,  0,  5,  0, 12, 16, 9,  0,  14, 24, 14, 26,
                                   0, 3, 2, 0, 14, 27, 12, 0, 10, 0,  14, 21, 8,  0,  2,  0};
    if (index < 2) {
        size_t bytes = index == 0 ? sizeof(whole) : sizeof(stop);
        memcpy(buffer, index == 0 ? whole : stop, bytes);
        return bytes;
    }
    if (index >= 60)
        return 0;
    size_t bytes = 2 * EVENTS_MAX < capacity ? 2 * EVENTS_MAX : capacity;
    uint64_t state = index * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        buffer[i] = (uint8_t)(state >> 56);
    }
    return bytes;
}
