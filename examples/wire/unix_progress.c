/* Frames: how the example's links send and receive, and tell that there is something to do. */
#define _GNU_SOURCE
#include "unix_wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Rounds of one call of progress, of two system calls each: no link keeps a thread for long. */
enum { TURNS = 32 };

/* Whether there is something to send. */
static int due(const antiphon_wire_link *link)
{
    return link->framed || link->told < link->landed || link->sent < link->posted;
}

/* Makes the next frame: the peer's completions first. */
static void next_frame(antiphon_wire_link *link)
{
    link->frame_sent = 0;
    link->framed = 1;
    if (link->told < link->landed) {
        link->told = link->landed;
        link->frame = (header){LANDED, 0, 0, link->landed};
        link->frame_bytes = 0;
        return;
    }
    const post *next = &link->posts[link->sent++ % POSTS];
    link->frame = next->header;
    link->frame_source = next->source;
    link->frame_from = next->from;
    link->frame_bytes = next->source ? next->header.value : 0;
}

/* Sends some; whether anything moved. */
static int send_some(antiphon_wire_link *link)
{
    if (!due(link))
        return 0;
    if (!link->framed)
        next_frame(link);
    uint64_t head = sizeof link->frame, done = link->frame_sent;
    struct iovec parts[2];
    size_t count = 0;
    if (done < head)
        parts[count++] = (struct iovec){(char *)&link->frame + done, head - done};
    uint64_t skip = done < head ? 0 : done - head;
    if (skip < link->frame_bytes)
        parts[count++] = (struct iovec){link->frame_source->memory.address + link->frame_from + skip,
                                        link->frame_bytes - skip};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(link->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    link->blocked = sent < 0 && errno == EAGAIN;
    if (sent < 0) {
        if (!link->blocked && errno != EINTR)
            lose(link, strerror(errno));
        return 0;
    }
    link->frame_sent += (uint64_t)sent;
    if (link->frame_sent == head + link->frame_bytes) {
        leave_region(link->wire, link->frame_source);
        link->frame_source = NULL;
        link->framed = 0;
    }
    return 1;
}

/* What followed a header is there. */
static void landed(antiphon_wire_link *link)
{
    leave_region(link->wire, link->target);
    link->target = NULL;
    link->arrived = 0;
    link->landed++;
}

/* A header is there: it comes from the peer, and may be anything. */
static void begin_frame(antiphon_wire_link *link)
{
    const header *frame = &link->arriving;
    if (frame->kind == LANDED) {
        if (frame->value < link->completed || frame->value > link->sent)
            lose(link, "the peer counts wrongly");
        link->completed = frame->value;
        link->arrived = 0;
        return;
    }
    uint64_t bytes = frame->kind == SIGNAL ? 8 : frame->value;
    int aligned = frame->kind == WRITE || (frame->to | bytes) % 8 == 0;
    link->target = use_region(link->wire, frame->region);
    if (frame->kind < WRITE || frame->kind > SIGNAL || !aligned || !link->target ||
        !inside(frame->to, bytes, link->target->memory.bytes)) {
        lose(link, "the peer posted outside the regions of this rank");
        return;
    }
    link->landed_bytes = 0;
    link->packet_bytes = 0;
    if (frame->kind == SIGNAL) {
        _Atomic uint64_t *counter = (_Atomic uint64_t *)(void *)(link->target->memory.address + frame->to);
        atomic_store_explicit(counter, frame->value, memory_order_release);
        landed(link);
    } else if (bytes == 0) {
        landed(link);
    }
}

/* Stores the whole units among the packets that arrived. */
static void store_packets(antiphon_wire_link *link)
{
    unsigned char *to = link->target->memory.address + link->arriving.to + link->landed_bytes;
    size_t whole = link->packet_bytes / 8 * 8;
    for (size_t at = 0; at < whole; at += 8) {
        uint64_t unit;
        memcpy(&unit, link->packets + at, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)(to + at), unit, memory_order_relaxed);
    }
    link->packet_bytes -= whole;
    link->landed_bytes += whole;
    memmove(link->packets, link->packets + whole, link->packet_bytes);
}

/* Receives some; whether anything moved. */
static int receive_some(antiphon_wire_link *link)
{
    int in_header = link->arrived < sizeof link->arriving;
    int packets = !in_header && link->arriving.kind == PACKETS;
    void *to = (char *)&link->arriving + link->arrived;
    uint64_t room = sizeof link->arriving - link->arrived;
    if (!in_header) {
        uint64_t left = link->arriving.value - link->landed_bytes - link->packet_bytes;
        room = packets && left > PACKET_BYTES - link->packet_bytes ? PACKET_BYTES - link->packet_bytes : left;
        to = packets ? link->packets + link->packet_bytes
                     : link->target->memory.address + link->arriving.to + link->landed_bytes;
    }
    char first;
    ssize_t got = recv(link->socket, link->awaited ? &first : to, link->awaited ? 1 : room, MSG_DONTWAIT);
    if (got <= 0) {
        if (got == 0)
            lose(link, "the peer closed the connection");
        else if (errno != EAGAIN && errno != EINTR)
            lose(link, strerror(errno));
        return 0;
    }
    if (link->awaited) {
        link->awaited = 0;
        return 1;
    }
    if (in_header) {
        link->arrived += (uint64_t)got;
        if (link->arrived == sizeof link->arriving)
            begin_frame(link);
        return 1;
    }
    if (packets) {
        link->packet_bytes += (size_t)got;
        store_packets(link);
    } else {
        link->landed_bytes += (uint64_t)got;
    }
    if (link->landed_bytes == link->arriving.value)
        landed(link);
    return 1;
}

int32_t link_progress(antiphon_wire_link *link, int32_t *moved, antiphon_wire_error *error)
{
    int32_t status = enter(link, error);
    if (status != ANTIPHON_WIRE_OK)
        return status;
    *moved = 0;
    if (link->socket < 0) {
        int connected = accept4(link->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (connected >= 0)
            take_socket(link, connected);
        if (connected >= 0 && link->socket >= 0 && send(connected, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
            lose(link, strerror(errno));
        *moved = connected >= 0;
    }
    if ((link->socket < 0 || link->awaited) && !link->lost[0] && seconds() - link->since >= PATIENCE)
        lose(link, "the peer has not answered for 10 seconds");
    for (int turn = 0; turn < TURNS && link->socket >= 0 && !link->lost[0]; turn++) {
        int received = receive_some(link);
        int sent = !link->lost[0] && send_some(link);
        if (!received && !sent)
            break;
        *moved = 1;
    }
    return leave(link, error);
}

int32_t link_arm(antiphon_wire_link *link, int32_t *armed, antiphon_wire_error *error)
{
    int32_t status = enter(link, error);
    if (status != ANTIPHON_WIRE_OK)
        return status;
    uint64_t rung;
    if (read(link->bell, &rung, sizeof rung) < 0 && errno != EAGAIN)
        lose(link, strerror(errno));
    link->armed = 1;
    *armed = 1;
    if (link->socket >= 0) {
        /* Only a socket that took no more is waited for; what can be sent now is a thing to do. */
        uint32_t wanted = EPOLLIN | (due(link) ? EPOLLOUT : 0);
        if (wanted != link->wanted)
            watch(link, link->socket, EPOLL_CTL_MOD, link->wanted = wanted);
        *armed = !due(link) || link->blocked;
    }
    return leave(link, error);
}
