/* gateway_checkpoint_due: see the header. */
#include "server/gateway/checkpoint_due.h"

void checkpoint_due_remove(struct gateway_request *r)
{
    struct gateway_copy_due *due = &r->copy_due;
    if (due->machine == NULL)
        return;
    if (due->previous != NULL)
        due->previous->copy_due.next = due->next;
    else
        due->machine->copy_first = due->next;
    if (due->next != NULL)
        due->next->copy_due.previous = due->previous;
    else
        due->machine->copy_last = due->previous;
    due->machine = NULL;
    due->previous = due->next = NULL;
}

void checkpoint_due_set(struct gateway_request *r, struct fleet_machine *machine, int64_t at_us)
{
    checkpoint_due_remove(r);
    struct gateway_request *before = machine->copy_last;
    while (before != NULL && before->copy_due.at_us > at_us)
        before = before->copy_due.previous;
    struct gateway_request *after = before != NULL ? before->copy_due.next : machine->copy_first;
    r->copy_due.at_us = at_us;
    r->copy_due.machine = machine;
    r->copy_due.previous = before;
    r->copy_due.next = after;
    if (before != NULL)
        before->copy_due.next = r;
    else
        machine->copy_first = r;
    if (after != NULL)
        after->copy_due.previous = r;
    else
        machine->copy_last = r;
}
