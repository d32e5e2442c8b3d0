//! Tags of what ranks' control threads tell each other on [`CONTROL`](crate::communicator::CONTROL): all that there are, and what
//! each carries. Numbers are of 8 bytes, little-endian, where nothing else is said.

/// Defines tags in ascending order, so that no two are the same: the compiler checks it.
macro_rules! tags {
    ($($(#[$doc:meta])+ $name:ident = $tag:literal;)+) => {
        $($(#[$doc])+ pub const $name: u32 = $tag;)+

        const _: () = {
            let (tags, mut at) = ([$($name),+], 1);
            while at < tags.len() {
                assert!(tags[at - 1] < tags[at], "tags ascend");
                at += 1;
            }
        };
    };
}

tags! {
    // Of memory that peers of the node map: `regions`.

    /// An offer: the region's number and the offer's blob. The descriptors go with it.
    OFFER = 1;
    /// A region that is gone: its number.
    RETIRE = 2;

    // Of links: `ports`, whose `LinkMessage` writes and reads them.

    /// The receiver, of lower rank, shall open a link. Carries nothing.
    WANT = 16;
    /// Half a link, by the lower rank: the length of the wire's name in 4 bytes, that name, and the half's address.
    OPEN = 17;
    /// The other half's address.
    ANSWER = 18;
    /// Why there is no link, as text.
    REFUSE = 19;
    /// A region that the link's wire knows now: its number, its bytes, and the wire's blob.
    LINK_REGION = 20;
    /// A region that is gone: its number.
    LINK_RETIRE = 21;
    /// The sender has left the communicator. Carries nothing.
    LEAVE = 22;

    // Of devices: `gpu`.

    /// A region is to be known to devices by a number: that number and the region's.
    NUMBER = 32;
    /// The arena of a context: the context and the number by which devices know the arena.
    ARENA = 33;
    /// The arena of a context, for ranks that cannot map it: the context, address and bytes.
    FAR_ARENA = 34;
    /// The memory of parcels for the receiver: its region and bytes.
    PARCELS = 35;
    /// A word about multicast groups, which `GroupMessage` writes and reads, and a handle behind it. The handle's descriptor goes with it.
    GROUP = 36;

    // Of calls: `communicator`.

    /// The sender forms its end of a pair: a byte for the direction and one for the purpose.
    PAIR = 48;
    /// The sender makes a call over nodes, with blocks that have lengths of their own, by code: the call's number and the code's name.
    UNEVEN_BY_CODE = 49;
    /// The sender makes a call by name that is recorded into graphs by code: the call's number and the code's name.
    RECORDED_BY_CODE = 50;
}
