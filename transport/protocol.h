/* protocol: the versions of the protocol that this program speaks. Constants only: any thread may
 * use them.
 *
 * In the hand-shake, each side sends the lowest and the highest version that it speaks. The
 * connection uses the highest version that both sides speak. If both sides speak no common version,
 * the connection is refused (handshake.h). Messages are encoded for the version of their connection
 * (message_encode).
 *
 * TRANSPORT_PROTOCOL_VERSION is raised by the first change, after a release, of what is sent: a new
 * field or array at the end of a message (struct message_growth), a new message, or a new meaning
 * of a value. The sender asks transport_peer_version, and does not send a peer what the peer would
 * not understand.
 *
 * TRANSPORT_PROTOCOL_LOWEST is raised to TRANSPORT_PROTOCOL_VERSION by a change after which an
 * older version cannot read the messages: a field, or an element of an array, was changed, moved or
 * removed. Releases before and after such a change refuse each other, so CHANGELOG.md names the
 * change. docs/contributing/add-a-message.md says which changes are of which kind. */
#ifndef TRANSPORT_PROTOCOL_H
#define TRANSPORT_PROTOCOL_H

#define TRANSPORT_PROTOCOL_VERSION 31
#define TRANSPORT_PROTOCOL_LOWEST  30

/* The first version that sends a lowest and a highest version. An older version sends one number,
 * and speaks only this version. */
#define TRANSPORT_PROTOCOL_RANGES 30

#endif
