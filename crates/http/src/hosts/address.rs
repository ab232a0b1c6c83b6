//! Ranges of addresses, and which addresses are inside: of this machine, of its network, or of the cloud around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that are not the Internet: this machine, its network, private networks, the services that clouds offer to
/// their machines (which give credentials away), multicast, and what is reserved. No rule of DNS keeps a name from having
/// one of them.
const INSIDE_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Shared by carriers; Alibaba serves credentials at 100.100.100.200.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Amazon, Google, Azure and others serve credentials at 169.254.169.254.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // The agent of Azure's machines; the address looks public.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    // Oracle serves credentials at 192.0.0.192.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

const INSIDE_V6: &[(Ipv6Addr, u8)] = &[
    // Unspecified, this machine, and what is left of addresses that stand for IPv4.
    (Ipv6Addr::UNSPECIFIED, 96),
    // Networks translate this prefix as they like.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64),
    // Teredo: the address of a machine behind a translator.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
    // Amazon serves credentials at fd00:ec2::254.
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// Whether an address is inside.
pub(super) fn is_inside(address: IpAddr) -> bool {
    let address = real(address);
    match address {
        IpAddr::V4(_) => INSIDE_V4
            .iter()
            .any(|(start, bits)| in_range(address, IpAddr::V4(*start), *bits)),
        IpAddr::V6(_) => INSIDE_V6
            .iter()
            .any(|(start, bits)| in_range(address, IpAddr::V6(*start), *bits)),
    }
}

/// The IPv4 address inside of an IPv6 address that only stands for it.
pub(super) fn real(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let last = |it: Ipv6Addr| {
        let [.., a, b, c, d] = it.octets();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    let begins = |it: Ipv6Addr, start: Ipv6Addr| in_range(it.into(), start.into(), 96);
    let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
    let translated = Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0);
    match v6.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) if begins(v6, nat64) || begins(v6, translated) => last(v6),
        // `::127.0.0.1`, the oldest form; `::` and `::1` are addresses of IPv6 itself.
        IpAddr::V6(v6) if begins(v6, Ipv6Addr::UNSPECIFIED) && v6.segments()[6] != 0 => last(v6),
        // 6to4: the address follows the first two bytes.
        IpAddr::V6(v6) if v6.segments()[0] == 0x2002 => {
            let [_, _, a, b, c, d, ..] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        it @ IpAddr::V6(_) => it,
    }
}

pub(super) fn in_range(address: IpAddr, start: IpAddr, bits: u8) -> bool {
    let same = |a: &[u8], b: &[u8]| {
        let whole = usize::from(bits / 8);
        let rest = bits % 8;
        a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0)
    };
    match (address, start) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(&a.octets(), &b.octets()),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_inside_address_is_inside() {
        for inside in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::a9fe:a9fe",
            "::ffff:10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001:0:53aa::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_inside(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "93.184.216.34",
            "100.128.0.1",
            "168.63.129.17",
            "172.32.0.1",
            "223.255.255.255",
            "2606:2800::1",
            "2001:4860:4860::8888",
            "::ffff:93.184.216.34",
            "64:ff9b::5db8:d822",
            "2002:5db8:d822::1",
        ] {
            assert!(!is_inside(outside.parse().unwrap()), "{outside}");
        }
    }
}
