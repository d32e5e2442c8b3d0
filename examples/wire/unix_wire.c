/*
 * A wire plugin in plain C: one Unix stream socket per link, for ranks of one machine and one user.
 *
 *   cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -I../../transports/port/include *.c \
 *      -o libantiphon_wire_unix.so
 *   ANTIPHON_WIRE_PLUGINS=./libantiphon_wire_unix.so antiphon run --wire unix ...
 *
 * It is meant to be read: what it does, every wire must do; how, it does in the simplest way. A link is one socket and
 * one lock. Posts wait in a ring; progress sends them as frames, a header of four words and perhaps bytes, straight
 * from registered memory. It receives the peer's frames straight into registered memory, and answers with how many posts
 * have landed: unix_progress.c. What the plugin does not do, for its simplicity: gather frames, or use more than one
 * connection.
 */
#define _GNU_SOURCE
#include "unix_wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

int32_t fail(antiphon_wire_error *error, int32_t status, const char *cure, const char *reason, ...)
{
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(error->reason, sizeof error->reason, reason, arguments);
    va_end(arguments);
    snprintf(error->cure, sizeof error->cure, "%s", cure);
    return status;
}

static int32_t system_failed(antiphon_wire_error *error, const char *what)
{
    return fail(error, ANTIPHON_WIRE_SYSTEM, "", "%s: %s", what, strerror(errno));
}

int inside(uint64_t at, uint64_t bytes, uint64_t room)
{
    return at <= room && bytes <= room - at;
}

/* ---- Regions ---- */

region *use_region(antiphon_wire *wire, uint64_t number)
{
    mtx_lock(&wire->lock);
    region *found = wire->regions;
    while (found && !(found->registered && found->memory.number == number))
        found = found->next;
    if (found)
        found->users++;
    mtx_unlock(&wire->lock);
    return found;
}

void leave_region(antiphon_wire *wire, region *left)
{
    if (!left)
        return;
    mtx_lock(&wire->lock);
    int last = --left->users == 0;
    if (last) {
        region **at = &wire->regions;
        while (*at != left)
            at = &(*at)->next;
        *at = left->next;
    }
    mtx_unlock(&wire->lock);
    if (last) {
        if (left->mapped)
            munmap(left->mapped, left->mapped_bytes);
        left->memory.release(left->memory.keep);
        free(left);
    }
}

/* Registers memory that this process sees where `memory` says; what is mapped for it is unmapped in the end. */
static int32_t enter_region(antiphon_wire *wire, const antiphon_wire_memory *memory, void *mapped, size_t mapped_bytes,
                            antiphon_wire_bytes *blob, antiphon_wire_registration **registration,
                            antiphon_wire_error *error)
{
    antiphon_wire_registration *made = calloc(1, sizeof *made);
    region *fresh = calloc(1, sizeof *fresh);
    if (!made || !fresh) {
        free(made);
        free(fresh);
        return system_failed(error, "register memory");
    }
    fresh->memory = *memory;
    fresh->mapped = mapped;
    fresh->mapped_bytes = mapped_bytes;
    fresh->users = 1;
    fresh->registered = 1;
    made->wire = wire;
    made->region = fresh;
    mtx_lock(&wire->lock);
    fresh->next = wire->regions;
    wire->regions = fresh;
    mtx_unlock(&wire->lock);
    /* Peers name a region by its number; they need nothing else. */
    blob->length = 0;
    *registration = made;
    return ANTIPHON_WIRE_OK;
}

static int32_t memory_register(antiphon_wire *wire, const antiphon_wire_memory *memory, antiphon_wire_bytes *blob,
                               antiphon_wire_registration **registration, antiphon_wire_error *error)
{
    if (memory->backend != ANTIPHON_WIRE_HOST)
        return fail(error, ANTIPHON_WIRE_UNSUPPORTED, "", "memory of a GPU without a buffer");
    return enter_region(wire, memory, NULL, 0, blob, registration, error);
}

/* Memory of a GPU, as far as its buffer can be mapped. A wire with a card would give the card the buffer instead. */
static int32_t memory_register_dma_buf(antiphon_wire *wire, const antiphon_wire_memory *memory,
                                       const antiphon_wire_dma_buf *buffer, antiphon_wire_bytes *blob,
                                       antiphon_wire_registration **registration, antiphon_wire_error *error)
{
    size_t bytes = buffer->offset + memory->bytes;
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->descriptor, 0);
    if (mapped == MAP_FAILED)
        return system_failed(error, "map a GPU's buffer");
    antiphon_wire_memory seen = *memory;
    seen.address = (unsigned char *)mapped + buffer->offset;
    int32_t status = enter_region(wire, &seen, mapped, bytes, blob, registration, error);
    if (status != ANTIPHON_WIRE_OK)
        munmap(mapped, bytes);
    return status;
}

static void memory_deregister(antiphon_wire_registration *registration)
{
    antiphon_wire *wire = registration->wire;
    mtx_lock(&wire->lock);
    registration->region->registered = 0;
    mtx_unlock(&wire->lock);
    leave_region(wire, registration->region);
    free(registration);
}

/* ---- Ends ---- */

static int32_t init(const antiphon_wire_host *host, antiphon_wire_error *error)
{
    (void)host;
    (void)error;
    return ANTIPHON_WIRE_OK;
}

static int32_t wire_open(const antiphon_wire_settings *settings, antiphon_wire **wire, antiphon_wire_error *error)
{
    antiphon_wire *made = calloc(1, sizeof *made);
    if (!made || mtx_init(&made->lock, mtx_plain) != thrd_success) {
        free(made);
        return system_failed(error, "open an end");
    }
    /* The kernel says who is at the other end of a Unix socket. A wire that leaves the machine would keep the key. */
    made->rank = settings->rank;
    *wire = made;
    return ANTIPHON_WIRE_OK;
}

static void wire_close(antiphon_wire *wire)
{
    mtx_destroy(&wire->lock);
    free(wire);
}

static uint64_t wire_describe(antiphon_wire *wire, char *text, uint64_t capacity)
{
    return (uint64_t)snprintf(text, capacity, "Unix sockets of rank %u", wire->rank);
}

static int32_t wire_reach(antiphon_wire *wire, const antiphon_wire_peer *peer, uint32_t *cost,
                          antiphon_wire_error *error)
{
    (void)wire;
    (void)peer;
    (void)error;
    /* Nothing here says which peers are on this machine: dear enough to be taken by those only who ask for it. */
    *cost = 1000;
    return ANTIPHON_WIRE_OK;
}

/* ---- Openings ---- */

/* The address of a socket in the kernel's own namespace: no file is left behind. */
static socklen_t socket_address(const char *name, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, NAME_BYTES);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + NAME_BYTES);
}

static void opening_close(antiphon_wire_opening *opening)
{
    close(opening->listener);
    free(opening);
}

static int32_t opening_open(antiphon_wire *wire, uint32_t peer, antiphon_wire_opening **opening,
                            antiphon_wire_error *error)
{
    antiphon_wire_opening *made = calloc(1, sizeof *made);
    if (!made)
        return system_failed(error, "open a link");
    made->wire = wire;
    made->peer = peer;
    made->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    if (getrandom(made->name, NAME_BYTES, 0) != NAME_BYTES || made->listener < 0 ||
        bind(made->listener, (struct sockaddr *)&address, socket_address(made->name, &address)) != 0 ||
        listen(made->listener, 8) != 0) {
        int32_t status = system_failed(error, "listen");
        opening_close(made);
        return status;
    }
    *opening = made;
    return ANTIPHON_WIRE_OK;
}

static int32_t opening_address(antiphon_wire_opening *opening, antiphon_wire_bytes *address,
                               antiphon_wire_error *error)
{
    (void)error;
    memcpy(address->data, opening->name, NAME_BYTES);
    address->length = NAME_BYTES;
    return ANTIPHON_WIRE_OK;
}

/* ---- Links ---- */

void lose(antiphon_wire_link *link, const char *reason)
{
    if (!link->lost[0])
        snprintf(link->lost, sizeof link->lost, "%s", reason);
}

int32_t enter(antiphon_wire_link *link, antiphon_wire_error *error)
{
    mtx_lock(&link->lock);
    if (!link->lost[0])
        return ANTIPHON_WIRE_OK;
    int32_t status = fail(error, ANTIPHON_WIRE_LOST, "", "%s", link->lost);
    mtx_unlock(&link->lock);
    return status;
}

int32_t leave(antiphon_wire_link *link, antiphon_wire_error *error)
{
    int32_t status = ANTIPHON_WIRE_OK;
    if (link->lost[0])
        status = fail(error, ANTIPHON_WIRE_LOST, "", "%s", link->lost);
    mtx_unlock(&link->lock);
    return status;
}

void watch(antiphon_wire_link *link, int descriptor, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events};
    if (epoll_ctl(link->events, operation, descriptor, &event) != 0)
        lose(link, strerror(errno));
}

static void link_close(antiphon_wire_link *link)
{
    int descriptors[] = {link->listener, link->socket, link->events, link->bell};
    for (size_t at = 0; at < sizeof descriptors / sizeof *descriptors; at++)
        if (descriptors[at] >= 0)
            close(descriptors[at]);
    for (; link->sent < link->posted; link->sent++)
        leave_region(link->wire, link->posts[link->sent % POSTS].source);
    leave_region(link->wire, link->frame_source);
    leave_region(link->wire, link->target);
    free(link->accepted);
    mtx_destroy(&link->lock);
    free(link);
}

void take_socket(antiphon_wire_link *link, int connected)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.uid != geteuid()) {
        close(connected);
        return;
    }
    link->socket = connected;
    watch(link, connected, EPOLL_CTL_ADD, link->wanted = EPOLLIN);
    if (link->listener >= 0)
        close(link->listener);
    link->listener = -1;
}

static int32_t opening_connect(antiphon_wire_opening *opening, const uint8_t *address, uint64_t address_bytes,
                               antiphon_wire_link **link, antiphon_wire_error *error)
{
    antiphon_wire_link *made = NULL;
    if (address_bytes != NAME_BYTES) {
        opening_close(opening);
        return fail(error, ANTIPHON_WIRE_INVALID, "32 bytes", "an address of %llu bytes",
                    (unsigned long long)address_bytes);
    }
    made = calloc(1, sizeof *made);
    if (!made || mtx_init(&made->lock, mtx_plain) != thrd_success) {
        free(made);
        opening_close(opening);
        return system_failed(error, "connect a link");
    }
    made->wire = opening->wire;
    made->peer = opening->peer;
    made->socket = -1;
    made->since = seconds();
    made->listener = opening->listener;
    made->events = epoll_create1(EPOLL_CLOEXEC);
    made->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch(made, made->bell, EPOLL_CTL_ADD, EPOLLIN);
    /* One of the two connects, and the other waits for that: whose name is less. */
    if (memcmp(opening->name, address, NAME_BYTES) < 0) {
        struct sockaddr_un peer;
        socklen_t bytes = socket_address((const char *)address, &peer);
        int connecting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connecting < 0 || connect(connecting, (struct sockaddr *)&peer, bytes) != 0) {
            lose(made, strerror(errno));
            if (connecting >= 0)
                close(connecting);
        } else {
            take_socket(made, connecting);
            /* The system completes a connection that the peer never takes. */
            made->awaited = 1;
            if (made->socket < 0)
                lose(made, "the peer is another user");
        }
    } else {
        watch(made, made->listener, EPOLL_CTL_ADD, EPOLLIN);
    }
    free(opening);
    if (made->lost[0]) {
        int32_t status = fail(error, ANTIPHON_WIRE_LOST, "", "cannot connect: %s", made->lost);
        link_close(made);
        return status;
    }
    *link = made;
    return ANTIPHON_WIRE_OK;
}

static int32_t link_accept(antiphon_wire_link *link, uint64_t number, uint64_t bytes, const uint8_t *blob,
                           uint64_t blob_bytes, antiphon_wire_error *error)
{
    (void)blob;
    if (blob_bytes != 0)
        return fail(error, ANTIPHON_WIRE_INVALID, "no bytes", "a blob of %llu bytes",
                    (unsigned long long)blob_bytes);
    int32_t status = enter(link, error);
    if (status != ANTIPHON_WIRE_OK)
        return status;
    size_t at = 0;
    while (at < link->accepted_count && link->accepted[at].number != number)
        at++;
    if (at == link->accepted_count) {
        accepted *more = realloc(link->accepted, (at + 1) * sizeof *more);
        if (!more) {
            mtx_unlock(&link->lock);
            return system_failed(error, "accept a region");
        }
        link->accepted = more;
        link->accepted_count++;
    }
    link->accepted[at] = (accepted){number, bytes};
    return leave(link, error);
}

static void link_retire(antiphon_wire_link *link, uint64_t number)
{
    mtx_lock(&link->lock);
    for (size_t at = 0; at < link->accepted_count; at++)
        if (link->accepted[at].number == number)
            link->accepted[at--] = link->accepted[--link->accepted_count];
    mtx_unlock(&link->lock);
}

/* Queues a post to a range of the peer's, if that makes sense. Takes the source over where it returns OK. */
static int32_t queue(antiphon_wire_link *link, const post *wanted, uint64_t bytes, antiphon_wire_error *error)
{
    int32_t status = enter(link, error);
    if (status != ANTIPHON_WIRE_OK)
        return status;
    const accepted *target = NULL;
    for (size_t at = 0; at < link->accepted_count && !target; at++)
        if (link->accepted[at].number == wanted->header.region)
            target = &link->accepted[at];
    if (!target || !inside(wanted->header.to, bytes, target->bytes)) {
        status = fail(error, ANTIPHON_WIRE_INVALID, "ranges inside regions that were accepted",
                      "%llu bytes at offset %llu of region %llu", (unsigned long long)bytes,
                      (unsigned long long)wanted->header.to, (unsigned long long)wanted->header.region);
        mtx_unlock(&link->lock);
        return status;
    }
    if (link->posted - link->sent == POSTS) {
        mtx_unlock(&link->lock);
        return ANTIPHON_WIRE_FULL;
    }
    link->posts[link->posted++ % POSTS] = *wanted;
    if (link->armed) {
        uint64_t one = 1;
        link->armed = 0;
        if (write(link->bell, &one, sizeof one) < 0)
            lose(link, strerror(errno));
    }
    return leave(link, error);
}

static int32_t link_write(antiphon_wire_link *link, const antiphon_wire_write *write, antiphon_wire_error *error)
{
    int packets = write->unit == ANTIPHON_WIRE_PACKETS;
    if (packets && (write->from | write->to | write->bytes) % 8 != 0)
        return fail(error, ANTIPHON_WIRE_INVALID, "multiples of 8", "%llu bytes of packets at odd offsets",
                    (unsigned long long)write->bytes);
    region *source = use_region(link->wire, write->source);
    if (!source || !inside(write->from, write->bytes, source->memory.bytes)) {
        leave_region(link->wire, source);
        return fail(error, ANTIPHON_WIRE_INVALID, "ranges inside registered memory",
                    "%llu bytes at offset %llu of memory %llu", (unsigned long long)write->bytes,
                    (unsigned long long)write->from, (unsigned long long)write->source);
    }
    post wanted = {
        .header = {packets ? PACKETS : WRITE, write->region, write->to, write->bytes},
        .source = source,
        .from = write->from,
    };
    int32_t status = queue(link, &wanted, write->bytes, error);
    if (status != ANTIPHON_WIRE_OK)
        leave_region(link->wire, source);
    return status;
}

static int32_t link_signal(antiphon_wire_link *link, uint64_t number, uint64_t to, uint64_t value,
                           antiphon_wire_error *error)
{
    if (to % 8 != 0)
        return fail(error, ANTIPHON_WIRE_INVALID, "multiples of 8", "a signal at offset %llu",
                    (unsigned long long)to);
    post wanted = {.header = {SIGNAL, number, to, value}};
    return queue(link, &wanted, 8, error);
}

static uint64_t link_posted(antiphon_wire_link *link)
{
    mtx_lock(&link->lock);
    uint64_t posted = link->posted;
    mtx_unlock(&link->lock);
    return posted;
}

static int32_t link_completed(antiphon_wire_link *link, uint64_t *count, antiphon_wire_error *error)
{
    int32_t status = enter(link, error);
    if (status != ANTIPHON_WIRE_OK)
        return status;
    *count = link->completed;
    return leave(link, error);
}

static void link_stop(antiphon_wire_link *link)
{
    /* Whoever sends and receives holds the lock meanwhile, and finds the link lost from now on. */
    mtx_lock(&link->lock);
    lose(link, "this rank ended it");
    /* The peer finds the connection closed, whether it stands already or not. */
    int *descriptors[] = {&link->listener, &link->socket};
    for (size_t at = 0; at < sizeof descriptors / sizeof *descriptors; at++) {
        if (*descriptors[at] >= 0)
            close(*descriptors[at]);
        *descriptors[at] = -1;
    }
    uint64_t one = 1;
    if (write(link->bell, &one, sizeof one) < 0 && errno != EAGAIN)
        lose(link, strerror(errno));
    mtx_unlock(&link->lock);
}

static uint64_t link_describe(antiphon_wire_link *link, char *text, uint64_t capacity)
{
    return (uint64_t)snprintf(text, capacity, "a Unix socket to rank %u", link->peer);
}

static int32_t link_descriptor(antiphon_wire_link *link)
{
    return link->events;
}

const antiphon_wire_plugin *antiphon_wire_plugin_v1(void)
{
    static const antiphon_wire_plugin plugin = {
        .magic = ANTIPHON_WIRE_MAGIC,
        .abi = ANTIPHON_WIRE_ABI,
        .struct_bytes = sizeof(antiphon_wire_plugin),
        .name = "unix",
        .init = init,
        .wire_open = wire_open,
        .wire_close = wire_close,
        .wire_describe = wire_describe,
        .wire_reach = wire_reach,
        .memory_register = memory_register,
        .memory_deregister = memory_deregister,
        .opening_open = opening_open,
        .opening_address = opening_address,
        .opening_connect = opening_connect,
        .opening_close = opening_close,
        .link_accept = link_accept,
        .link_retire = link_retire,
        .link_write = link_write,
        .link_signal = link_signal,
        .link_posted = link_posted,
        .link_completed = link_completed,
        .link_progress = link_progress,
        .link_descriptor = link_descriptor,
        .link_arm = link_arm,
        .link_stop = link_stop,
        .link_describe = link_describe,
        .link_close = link_close,
        .memory_register_dma_buf = memory_register_dma_buf,
    };
    return &plugin;
}
