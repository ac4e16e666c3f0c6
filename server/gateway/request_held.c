/* gateway_request_held: see the header. */
#include "server/gateway/request_held.h"

#include "transport/transport.h"

static uint64_t connection_of(const struct fleet_machine *machine)
{
    return fleet_machine_up(machine) ? transport_peer_number(machine->connection.peer) : 0;
}

/* Records that the machine, if it is up, keeps the KV of `tokens` tokens, unless another machine
 * keeps more. */
static void held_add(struct gateway_request *r, struct fleet_machine *machine, uint32_t tokens)
{
    if (machine != NULL && fleet_machine_up(machine) && tokens > r->held.tokens)
        r->held = (struct gateway_held){
            .machine = machine, .connection = connection_of(machine), .tokens = tokens};
}

void request_held_update(struct gateway_request *r, const struct fleet_machine *gone)
{
    if (r->held.tokens == 0 || r->held.machine == gone ||
        connection_of(r->held.machine) != r->held.connection)
        r->held = (struct gateway_held){0};
    bool computed = r->delivered > r->delivered_before || r->state == GATEWAY_REQUEST_PREFILLED;
    if (r->prompt_machine != gone && r->prompt_machine != r->token_machine)
        held_add(r, r->prompt_machine,
                 computed ? r->prompt_count + r->delivered_before : r->prompt_progress);
    if (r->token_machine != gone)
        held_add(r, r->token_machine, r->token_progress);
    const struct gateway_checkpoint *copy = &r->checkpoint;
    if (copy->resumable_tokens > r->held.tokens && copy->machine != gone &&
        connection_of(copy->machine) == copy->connection) {
        held_add(r, copy->machine, copy->resumable_tokens);
        r->held.checkpoint = true;
    }
}
