/* protocol: the versions of the protocol that this program speaks. Constants only.
 *
 * In the hand-shake, each side says the lowest and the highest version that it speaks. The highest
 * version that both speak is used; without one, the connection is refused (handshake.h). Messages
 * are encoded for this version (message_encode), so machines and gateways of adjacent releases
 * work together.
 *
 * TRANSPORT_PROTOCOL_VERSION is raised by each change of what is sent: a field or an array at the
 * end of a message (struct message_growth), a message that older versions do not know, or another
 * meaning of a value. What an older version would not understand is not sent to it: the sender asks
 * transport_peer_version.
 *
 * TRANSPORT_PROTOCOL_LOWEST is raised to TRANSPORT_PROTOCOL_VERSION by a change that older versions
 * cannot be spared: a field or an element of an array that has changed, moved or gone. Releases
 * before and after such a change refuse each other, so CHANGELOG.md names it.
 * docs/contributing/add-a-message.md says which changes are which. */
#ifndef TRANSPORT_PROTOCOL_H
#define TRANSPORT_PROTOCOL_H

#define TRANSPORT_PROTOCOL_VERSION 31
#define TRANSPORT_PROTOCOL_LOWEST  30

/* The first version that sends a range. Older ones speak one version only. */
#define TRANSPORT_PROTOCOL_RANGES 30

#endif
