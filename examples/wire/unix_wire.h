/* What both files of the example share: its objects, and the few functions that cross. */
#ifndef UNIX_WIRE_H
#define UNIX_WIRE_H

#include "antiphon_wire.h"

#include <threads.h>

enum {
    NAME_BYTES = 32,     /* Of a socket's name, which is random. */
    POSTS = 1024,        /* That wait to be sent. */
    PACKET_BYTES = 16384, /* Of packets that are received at once. */
    PATIENCE = 10         /* Seconds in which a peer answers, or never will. */
};

/* What a frame is. */
enum { WRITE = 1, PACKETS = 2, SIGNAL = 3, LANDED = 4 };

typedef struct {
    uint64_t kind;
    uint64_t region;
    uint64_t to;
    uint64_t value; /* Bytes that follow, a counter's value, or how many posts have landed. */
} header;

/* Registered memory. It is kept by its registration, and by posts and arrivals that touch it. */
typedef struct region {
    antiphon_wire_memory memory;
    void *mapped; /* A GPU's buffer, or null; then the memory's address is in here. */
    size_t mapped_bytes;
    unsigned users;
    int registered;
    struct region *next;
} region;

struct antiphon_wire {
    uint32_t rank;
    mtx_t lock; /* Of the regions and their users. */
    region *regions;
};

struct antiphon_wire_registration {
    antiphon_wire *wire;
    region *region;
};

struct antiphon_wire_opening {
    antiphon_wire *wire;
    uint32_t peer;
    int listener;
    char name[NAME_BYTES];
};

/* A region of the peer's. */
typedef struct {
    uint64_t number;
    uint64_t bytes;
} accepted;

typedef struct {
    header header;
    region *source; /* Null but for writes. */
    uint64_t from;
} post;

struct antiphon_wire_link {
    antiphon_wire *wire;
    uint32_t peer;
    mtx_t lock;    /* Of all below. */
    int listener;  /* Until the peer came, or -1. */
    int socket;    /* From then on, or -1. */
    int events;    /* An epoll set of one of them and of the bell: what the link's descriptor is. */
    int bell;      /* An eventfd that posts ring while the link is armed. */
    int armed;
    uint32_t wanted; /* What the set tells of the socket. */
    int blocked;     /* The socket took no more. */
    int awaited;     /* The peer's first byte, which says that it took the connection. */
    int64_t since;   /* When the link was made, in seconds. */
    char lost[200];  /* Why, or empty. */

    accepted *accepted;
    size_t accepted_count;

    post posts[POSTS];
    uint64_t posted; /* Posts begin at 0. */
    uint64_t sent;
    uint64_t completed;
    header frame; /* The one that is being sent, */
    region *frame_source;
    uint64_t frame_from, frame_bytes;
    uint64_t frame_sent; /* so far: header and bytes. */
    int framed;

    header arriving;
    uint64_t arrived; /* Bytes of the header, */
    region *target;   /* then of what follows, */
    uint64_t landed_bytes;
    _Alignas(8) unsigned char packets[PACKET_BYTES];
    size_t packet_bytes;
    uint64_t landed; /* Posts of the peer's, */
    uint64_t told;   /* and as many it was told of. */
};

/* Fills in an error; its status, to return. */
__attribute__((format(printf, 4, 5)))
int32_t fail(antiphon_wire_error *error, int32_t status, const char *cure, const char *reason, ...);

/* Seconds of a clock that never jumps. */
int64_t seconds(void);

/* Whether a range lies inside so many bytes. */
int inside(uint64_t at, uint64_t bytes, uint64_t room);

/* A registered region, of which there is one user more; or null. */
region *use_region(antiphon_wire *wire, uint64_t number);
/* Ends a use; of null as well. */
void leave_region(antiphon_wire *wire, region *left);

/* Breaks a link for good. */
void lose(antiphon_wire_link *link, const char *reason);
/* Locks a link, unless it is lost. */
int32_t enter(antiphon_wire_link *link, antiphon_wire_error *error);
/* Unlocks it, and tells of a loss. */
int32_t leave(antiphon_wire_link *link, antiphon_wire_error *error);
/* Puts a descriptor into the link's set, or changes what the set tells of it. */
void watch(antiphon_wire_link *link, int descriptor, int operation, uint32_t events);
/* Takes a connected socket, if this user's process is at its other end. */
void take_socket(antiphon_wire_link *link, int connected);

/* unix_progress.c */
int32_t link_progress(antiphon_wire_link *link, int32_t *moved, antiphon_wire_error *error);
int32_t link_arm(antiphon_wire_link *link, int32_t *armed, antiphon_wire_error *error);

#endif
