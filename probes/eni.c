/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <sys/socket.h>

#include "probe.h"

#define MACS "/latest/meta-data/network/interfaces/macs/"

#define MAX_AGE  (60 * USEC_PER_SEC) /* of the kernel's tables while no message came */
#define PATIENCE (4 * USEC_PER_SEC)  /* for metadata in one run */
#define REFRESH  (60 * USEC_PER_SEC) /* of what metadata says */
#define PER_ENI  (9 * USEC_PER_SEC)  /* stretches it where there are many */
#define COST     (2 * USEC_PER_SEC)  /* a request is paid for by so much waiting */
#define CREDIT   (30 * COST)         /* so many may go at once: 60 in the worst minute */
#define RECHECK  (5 * USEC_PER_SEC)  /* while kernel and metadata disagree */
#define RECHECKS 12                  /* and then no oftener than REFRESH again */
#define HOT_PLUG (10 * USEC_PER_SEC) /* attaching and detaching reach both at different times */
#define FORGET   (1800 * USEC_PER_SEC)
#define SETUP    (60 * USEC_PER_SEC)  /* from the attachment until the CNI has set it up */
#define NOTICED  (180 * USEC_PER_SEC) /* ipamd looks for new ENIs once a minute */
#define FRESH    (120 * USEC_PER_SEC) /* of what ipamd said */

enum { BODY_MAX = 16384, IN_FLIGHT_MAX = 4, TABLES_MAX = 128 };
enum { PRIORITY_POD = 512, PRIORITY_POD_SOURCE = 1536, PRIORITY_ENI = 32765 };

/* The per-MAC keys. The first ones never change while the ENI is attached; network-card is named
 * network-card-index in the documentation, and neither exists on most instances. */
enum key {
	KEY_ID,
	KEY_DEVICE,
	KEY_CARD,
	KEY_CARD_INDEX,
	KEY_SUBNET,
	KEY_IPV4S,
	KEY_PREFIX4,
	KEY_PREFIX6,
	KEY_MAX
};

#define BIT(key) (1U << (key))
#define FIXED    (BIT(KEY_ID) | BIT(KEY_DEVICE) | BIT(KEY_CARD) | BIT(KEY_SUBNET))
#define MOVING   (BIT(KEY_IPV4S) | BIT(KEY_PREFIX4) | BIT(KEY_PREFIX6))
#define PREFIXES (BIT(KEY_PREFIX4) | BIT(KEY_PREFIX6))
#define TAG_LIST UINTPTR_MAX

static const char *const key_names[] = {
	[KEY_ID] = "interface-id",     [KEY_DEVICE] = "device-number",
	[KEY_CARD] = "network-card",   [KEY_CARD_INDEX] = "network-card-index",
	[KEY_SUBNET] = "subnet-id",    [KEY_IPV4S] = "local-ipv4s",
	[KEY_PREFIX4] = "ipv4-prefix", [KEY_PREFIX6] = "ipv6-prefix",
};

/* What metadata said of one ENI. */
struct entry {
	char mac[MAC_TEXT_MAX], eni_id[32], subnet_id[32];
	int device, card;
	struct address ipv4;
	int n_ipv4s, n_prefix4, n_prefix6;
	unsigned known;       /* BIT(key) of what was answered at least once */
	unsigned wanted;      /* BIT(key) of what is to be asked */
	usec_t read_at;       /* when MOVING was last asked */
	usec_t missing_since; /* no link in the kernel; 0: there is one */
};

/* What is odd about an ENI has to last before it is said. */
enum oddity { ODD_NONE, ODD_UNCONFIGURED, ODD_FOREIGN, ODD_GONE };

struct oddness {
	char eni_id[32];
	enum oddity what;
	usec_t since;
	bool seen; /* at this look */
};

struct memory {
	struct entry entries[ENIS_MAX];
	struct oddness odd[ENIS_MAX];
	size_t n_odd;
	size_t n;
	bool listed, more; /* the list was read at least once; it was longer than ENIS_MAX */
	usec_t listed_at;
	unsigned rechecks;
	usec_t paid_until; /* what was asked is paid for by then */
	uint64_t cards;    /* a hash of the kernel's network cards at the last look */
};

struct state {
	unsigned in_flight;
	unsigned asked[ENIS_MAX]; /* BIT(key) of what this run has asked */
	bool stop;                /* metadata is silent, or our budget is spent */
	bool silent;
	usec_t begun;
};

static void pump(struct run *r);
static void on_reply(struct run *r, const struct imds_reply *reply, uintptr_t tag);

/* ---- what to ask, and when ---- */

static uint64_t hash_cards(const struct net *net)
{
	uint64_t h = 0;

	for (size_t i = 0; i < net->n_links; i++)
		if (net_link_is_nic(&net->links[i]))
			h += hash_text((uint64_t) net->links[i].index, net->links[i].mac);
	return h;
}

/* Something must be said of each ENI in a minute or so, but never more than half a request a
 * second. */
static usec_t refresh_interval(const struct memory *m)
{
	usec_t stretched = m->n * PER_ENI;

	return stretched > REFRESH ? stretched : REFRESH;
}

/* A link came or went that metadata does not know of, or knows still. */
static bool is_unsettled(const struct memory *m, const struct net *net)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->entries[i].missing_since)
			return true;
	for (size_t i = 0; i < net->n_links; i++) {
		const struct net_link *l = &net->links[i];
		bool known = false;

		if (!net_link_is_nic(l))
			continue;
		for (size_t k = 0; k < m->n && !known; k++)
			known = strcmp(m->entries[k].mac, l->mac) == 0 ||
			        strcmp(m->entries[k].mac, l->perm_mac) == 0;
		if (!known)
			return true;
	}
	return false;
}

static bool is_list_due(struct run *r, struct memory *m, const struct net *net)
{
	uint64_t cards = hash_cards(net);
	usec_t age = run_now(r) - m->listed_at;

	if (cards != m->cards) {
		m->cards = cards;
		m->rechecks = 0;
		/* an address or a prefix comes with an ENI */
		for (size_t i = 0; i < m->n; i++)
			m->entries[i].wanted |= MOVING;
		return true;
	}
	if (!m->listed || age >= REFRESH)
		return true;
	if (age < RECHECK || m->rechecks >= RECHECKS || !is_unsettled(m, net))
		return false;
	m->rechecks++;
	return true;
}

static void want_refresh(struct run *r, struct memory *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (run_now(r) - m->entries[i].read_at >= refresh_interval(m))
			m->entries[i].wanted |= MOVING;
}

/* Whether to ask for prefixes at all, the addresses tell. */
static bool next_question(const struct memory *m, const struct state *s, size_t *ret_entry,
                          enum key *ret_key)
{
	for (size_t i = 0; i < m->n; i++)
		for (int k = 0; k < KEY_MAX; k++)
			if (m->entries[i].wanted & ~s->asked[i] & BIT(k) &&
			    !(BIT(k) & PREFIXES && m->entries[i].wanted & BIT(KEY_IPV4S))) {
				*ret_entry = i;
				*ret_key = (enum key) k;
				return true;
			}
	return false;
}

/* Our own share of the budget, below the one that the metadata instrument keeps for all. */
static bool pay(struct run *r)
{
	struct memory *m = run_memory(r);
	usec_t from = m->paid_until > run_now(r) ? m->paid_until : run_now(r);

	if (run_once(r))
		return true;
	if (from + COST - run_now(r) > CREDIT)
		return false;
	m->paid_until = from + COST;
	return true;
}

static bool ask(struct run *r, const char *path, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (!pay(r) || run_imds(r, path, BODY_MAX, true, on_reply, tag) < 0) {
		s->stop = true;
		return false;
	}
	s->in_flight++;
	return true;
}

/* ---- answers ---- */

/* "aa:bb:cc:dd:ee:ff/", lower case */
static bool parse_mac(const char *line, size_t len, char ret[static MAC_TEXT_MAX])
{
	if (len == MAC_TEXT_MAX && line[len - 1] == '/')
		len--;
	if (len != MAC_TEXT_MAX - 1)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool colon = i % 3 == 2;
		char c = line[i];

		if (colon ? c != ':' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	memcpy(ret, line, len);
	ret[len] = 0;
	return true;
}

/* Cuts the next line that is not empty off a list; NULL at its end. */
static const char *next_line(const char **p, size_t *ret_len)
{
	const char *line = *p + strspn(*p, "\r\n");

	*ret_len = strcspn(line, "\r\n");
	*p = line + *ret_len;
	return *ret_len ? line : NULL;
}

static const struct entry *find_entry(const struct entry *entries, size_t n, const char *mac)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(entries[i].mac, mac) == 0)
			return &entries[i];
	return NULL;
}

/* Entries that are still listed keep what is known of them. False when the text is no list of MACs.
 */
static bool take_list(struct memory *m, const char *body, usec_t now)
{
	_cleanup_(freep) struct entry *next = calloc(ENIS_MAX, sizeof(*next));
	const char *line;
	bool more = false;
	size_t n = 0, len;

	if (!next)
		return false;
	while ((line = next_line(&body, &len))) {
		const struct entry *old;
		char mac[MAC_TEXT_MAX];

		if (!parse_mac(line, len, mac))
			return false;
		if (find_entry(next, n, mac)) /* said twice, there once */
			continue;
		if (n == ENIS_MAX) {
			more = true;
			break;
		}
		old = find_entry(m->entries, m->n, mac);
		if (old)
			next[n] = *old;
		else
			next[n] =
				(struct entry){.device = -1, .card = -1, .wanted = FIXED | MOVING};
		memcpy(next[n++].mac, mac, sizeof(mac));
	}
	memcpy(m->entries, next, n * sizeof(*next));
	m->n = n;
	m->more = more;
	m->listed = true;
	m->listed_at = now;
	return n > 0; /* an instance has at least one */
}

static int count_lines(const char *body)
{
	size_t len;
	int n = 0;

	while (next_line(&body, &len))
		n++;
	return n;
}

/* An identifier as metadata gives them: "eni-0123", "subnet-0123". */
static void take_text(char *ret, size_t size, const char *body)
{
	size_t len;
	const char *line = next_line(&body, &len);

	(void) text_clean(ret, size, line ? line : "", line ? len : 0);
}

static int take_number(const char *body)
{
	const char *line;
	char digits[8];
	uint64_t n;
	size_t len;

	line = next_line(&body, &len);
	if (!line || len >= sizeof(digits))
		return -1;
	memcpy(digits, line, len);
	digits[len] = 0;
	return text_to_uint(digits, 0, 1023, &n) == 0 ? (int) n : -1;
}

/* body is NULL for 404: there is none. */
static void take_value(struct entry *e, enum key key, const char *body)
{
	char text[ADDRESS_TEXT_MAX];

	e->wanted &= ~BIT(key);
	e->known |= BIT(key);
	switch (key) {
	case KEY_ID:
		take_text(e->eni_id, sizeof(e->eni_id), body ? body : "");
		break;
	case KEY_DEVICE:
		e->device = take_number(body ? body : "");
		break;
	case KEY_CARD:
		if (body)
			e->card = take_number(body);
		else
			e->wanted |= BIT(KEY_CARD_INDEX);
		break;
	case KEY_CARD_INDEX:
		e->card = body ? take_number(body) : 0;
		break;
	case KEY_SUBNET:
		take_text(e->subnet_id, sizeof(e->subnet_id), body ? body : "");
		break;
	case KEY_IPV4S:
		e->n_ipv4s = count_lines(body ? body : "");
		if (e->n_ipv4s == 0) { /* EFA-only: it carries no prefix either */
			e->n_prefix4 = e->n_prefix6 = 0;
			e->known |= MOVING;
			e->wanted &= ~MOVING;
		}
		take_text(text, sizeof(text), body ? body : "");
		if (address_parse(&e->ipv4, text) < 0)
			e->ipv4 = (struct address){0};
		break;
	case KEY_PREFIX4:
		e->n_prefix4 = count_lines(body ? body : "");
		break;
	default:
		e->n_prefix6 = count_lines(body ? body : "");
		break;
	}
}

static void on_reply(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	bool there = reply->http.outcome == OUTCOME_OK && reply->http.code == 200;
	bool absent = reply->http.outcome == OUTCOME_OK && reply->http.code == 404;

	s->in_flight--;
	if (reply->throttled) {
		s->stop = true;
	} else if (reply->disabled || reply->step != IMDS_GET || (!there && !absent)) {
		s->stop = s->silent = true;
	} else if (tag == TAG_LIST) {
		if (!there || !take_list(m, reply->http.body, run_now(r)))
			s->stop = s->silent = true;
		else
			want_refresh(r, m);
	} else if (tag / KEY_MAX < m->n) {
		struct entry *e = &m->entries[tag / KEY_MAX];

		take_value(e, (enum key)(tag % KEY_MAX), there ? reply->http.body : NULL);
		if (!(e->wanted & MOVING))
			e->read_at = run_now(r);
	}
	pump(r);
}

/* ---- the kernel's side ---- */

struct table {
	uint32_t id;
	size_t eni; /* of enis[] */
	bool dhcp, rule;
};

struct kernel {
	const struct net *net;
	const struct net_link *links[ENIS_MAX]; /* beside enis[] */
	struct table tables[TABLES_MAX];
	size_t n_tables;
	size_t primary; /* of enis[]; SIZE_MAX: not known */
};

/* Kernels before 5.14 do not name the bus: there the driver tells. */
static bool has_eni_driver(struct run *r, const char *name)
{
	static const char *const drivers[] = {"DRIVER=ena", "DRIVER=ixgbevf", "DRIVER=vif"};
	const char *text, *line;
	char path[64];
	size_t len;

	(void) text_format(path, sizeof(path), "/sys/class/net/%s/device/uevent", name);
	if (run_read(r, path, 4096, &text, &len) < 0)
		return false;
	while ((line = next_line(&text, &len)))
		for (size_t i = 0; i < ELEMENTS(drivers); i++)
			if (len == strlen(drivers[i]) && memcmp(line, drivers[i], len) == 0)
				return true;
	return false;
}

/* While metadata is silent. A vlan on an ENI has the same MAC, a veth may look alike: neither is
 * one. */
static bool is_eni_by_kernel(struct run *r, const struct net_link *l)
{
	if (l->type != ARPHRD_ETHER || l->kind[0] || (l->flags & IFF_LOOPBACK))
		return false;
	if (strcmp(l->bus, "pci") == 0 || strcmp(l->bus, "vif") == 0)
		return true;
	return !l->bus[0] && has_eni_driver(r, l->name);
}

static struct address address_of(const struct net *net, int index)
{
	for (size_t i = 0; i < net->n_addrs; i++) {
		const struct net_addr *a = &net->addrs[i];

		if (a->index == index && a->address.family == AF_INET &&
		    a->scope == RT_SCOPE_UNIVERSE)
			return a->address;
	}
	return (struct address){0};
}

static void add_eni(struct network *n, struct kernel *k, const struct net_link *l,
                    const struct entry *e, bool fresh)
{
	bool moving = e && fresh && (e->known & MOVING) == MOVING;
	struct eni *x;

	if (n->n_enis == ENIS_MAX)
		return;
	k->links[n->n_enis] = l;
	x = &n->enis[n->n_enis++];
	*x = (struct eni){.device = -1, .card = -1, .ips_assigned = -1, .prefixes = -1};
	if (e) {
		memcpy(x->mac, e->mac, sizeof(x->mac));
		memcpy(x->eni_id, e->eni_id, sizeof(x->eni_id));
		memcpy(x->subnet_id, e->subnet_id, sizeof(x->subnet_id));
		x->device = e->device;
		x->card = e->card;
		x->ipv4 = e->ipv4;
		x->in_metadata = true;
	}
	if (moving) {
		x->ips_assigned = (e->n_ipv4s > 0 ? e->n_ipv4s - 1 : 0) + 16 * e->n_prefix4;
		x->prefixes = e->n_prefix4 + e->n_prefix6;
	}
	if (!l)
		return;
	if (!e)
		memcpy(x->mac, l->mac, sizeof(x->mac));
	/* the kernel takes any byte but a slash, a colon and white space */
	(void) text_clean(x->name, sizeof(x->name), l->name, strlen(l->name));
	x->in_kernel = true;
	x->up = net_link_is_up(l);
	x->carrier = l->carrier;
	if (!x->ipv4.family)
		x->ipv4 = address_of(k->net, l->index);
}

static void collect_enis(struct run *r, struct network *n, struct kernel *k)
{
	const struct memory *m = run_memory(r);

	for (size_t i = 0; i < m->n; i++) {
		const struct entry *e = &m->entries[i];

		add_eni(n, k, net_link_by_mac(k->net, e->mac), e,
		        e->read_at && run_now(r) - e->read_at < FORGET);
	}
	if (m->listed)
		return;
	for (size_t i = 0; i < k->net->n_links; i++)
		if (is_eni_by_kernel(r, &k->net->links[i]))
			add_eni(n, k, &k->net->links[i], NULL, false);
}

/* By card, then device; what is not known comes last, in the kernel's order. */
static bool goes_before(const struct kernel *k, const struct eni *a, size_t ia, const struct eni *b,
                        size_t ib)
{
	unsigned card_a = (unsigned) a->card, card_b = (unsigned) b->card;
	unsigned device_a = (unsigned) a->device, device_b = (unsigned) b->device;

	if (card_a != card_b)
		return card_a < card_b;
	if (device_a != device_b)
		return device_a < device_b;
	return k->links[ia] && k->links[ib] && k->links[ia]->index < k->links[ib]->index;
}

static void sort_enis(struct network *n, struct kernel *k)
{
	for (size_t i = 1; i < n->n_enis; i++)
		for (size_t j = i; j > 0 && goes_before(k, &n->enis[j], j, &n->enis[j - 1], j - 1);
		     j--) {
			struct eni x = n->enis[j];
			const struct net_link *l = k->links[j];

			n->enis[j] = n->enis[j - 1];
			k->links[j] = k->links[j - 1];
			n->enis[j - 1] = x;
			k->links[j - 1] = l;
		}
}

static size_t find_primary(const struct network *n, const struct kernel *k, const struct node *node)
{
	const struct net_route *t = net_default_route(k->net, AF_INET, RT_TABLE_MAIN);

	if (!t)
		t = net_default_route(k->net, AF_INET6, RT_TABLE_MAIN);
	for (size_t i = 0; i < n->n_enis; i++)
		if (node->mac[0] ? strcmp(n->enis[i].mac, node->mac) == 0
		                 : n->enis[i].device == 0 && n->enis[i].card == 0)
			return i;
	for (size_t i = 0; i < n->n_enis; i++)
		if (t && k->links[i] && k->links[i]->index == t->oif)
			return i;
	return n->n_enis == 1 ? 0 : SIZE_MAX;
}

static struct table *find_table(struct kernel *k, uint32_t id)
{
	for (size_t i = 0; i < k->n_tables; i++)
		if (k->tables[i].id == id)
			return &k->tables[i];
	return NULL;
}

/* A table of its own with a default route through the ENI. Bounded by the ENIs, not by the pods. */
static void collect_tables(const struct network *n, struct kernel *k, bool dhcp[static ENIS_MAX])
{
	for (size_t i = 0; i < k->net->n_routes; i++) {
		const struct net_route *t = &k->net->routes[i];
		bool own = t->table != RT_TABLE_MAIN && t->dst_len == 0 && t->type == RTN_UNICAST;

		/* a pod's host route: there are a thousand of them, and it is on no ENI */
		if (!own && t->protocol != RTPROT_DHCP)
			continue;
		for (size_t e = 0; e < n->n_enis; e++) {
			if (!k->links[e] || k->links[e]->index != t->oif)
				continue;
			dhcp[e] = dhcp[e] || t->protocol == RTPROT_DHCP;
			if (own && k->n_tables < TABLES_MAX && !find_table(k, t->table))
				k->tables[k->n_tables++] = (struct table){.id = t->table, .eni = e};
		}
	}
}

static void find_managers(struct network *n, struct kernel *k)
{
	bool dhcp[ENIS_MAX] = {false}, table[ENIS_MAX] = {false}, rule[ENIS_MAX] = {false};

	collect_tables(n, k, dhcp);
	for (size_t i = 0; i < k->n_tables; i++)
		table[k->tables[i].eni] = true;
	for (size_t i = 0; i < k->net->n_rules; i++) {
		const struct net_rule *u = &k->net->rules[i];
		const struct table *t =
			u->priority == PRIORITY_ENI ? find_table(k, u->table) : NULL;

		if (!t)
			continue;
		rule[t->eni] = true;
		dhcp[t->eni] = dhcp[t->eni] || u->protocol == RTPROT_DHCP;
	}
	for (size_t i = 0; i < n->n_enis; i++) {
		if (i == k->primary)
			n->enis[i].managed_by = MANAGED_PRIMARY;
		else if (!k->links[i])
			n->enis[i].managed_by = MANAGED_UNKNOWN;
		else if (dhcp[i])
			n->enis[i].managed_by = MANAGED_NETWORKD;
		else if (table[i]) /* the CNI makes no rule for a trunk, but its table */
			n->enis[i].managed_by = MANAGED_CNI;
		else
			n->enis[i].managed_by = rule[i] ? MANAGED_UNKNOWN : MANAGED_NOBODY;
	}
}

/* ---- pods ---- */

struct pod {
	struct address address;
	size_t eni; /* of enis[]; SIZE_MAX: the primary, or unknown */
};

static int compare_pods(const void *a, const void *b)
{
	return memcmp(&((const struct pod *) a)->address, &((const struct pod *) b)->address,
	              sizeof(struct address));
}

static bool is_host(const struct address *a, uint8_t len)
{
	return (a->family == AF_INET && len == 32) || (a->family == AF_INET6 && len == 128);
}

static size_t unique(struct pod *pods, size_t n)
{
	size_t kept = 0;

	qsort(pods, n, sizeof(*pods), compare_pods);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || compare_pods(&pods[kept - 1], &pods[i]) != 0)
			pods[kept++] = pods[i];
	return kept;
}

/* A rule to each pod's address; another from it when it lies on a secondary ENI. Sorted once, so
 * that a thousand pods cost a thousand times ten comparisons. */
static int count_pods(struct network *n, struct kernel *k, size_t *ret_v4, size_t *ret_v6)
{
	_cleanup_(freep) struct pod *pods = calloc(k->net->n_rules + 1, sizeof(*pods));
	size_t count = 0;

	if (!pods)
		return -ENOMEM;
	*ret_v4 = *ret_v6 = 0;
	for (size_t i = 0; i < k->net->n_rules; i++) {
		const struct net_rule *u = &k->net->rules[i];

		if (u->priority == PRIORITY_POD && u->table == RT_TABLE_MAIN &&
		    is_host(&u->dst, u->dst_len))
			pods[count++] = (struct pod){u->dst, k->primary};
	}
	count = unique(pods, count);
	for (size_t i = 0; i < k->net->n_rules; i++) {
		const struct net_rule *u = &k->net->rules[i];
		const struct table *t;
		struct pod *pod, wanted;

		if (u->priority != PRIORITY_POD_SOURCE || !is_host(&u->src, u->src_len))
			continue;
		wanted = (struct pod){.address = u->src};
		pod = bsearch(&wanted, pods, count, sizeof(*pods), compare_pods);
		t = pod ? find_table(k, u->table) : NULL;
		if (t)
			pod->eni = t->eni;
	}
	for (size_t i = 0; i < count; i++) {
		*(pods[i].address.family == AF_INET ? ret_v4 : ret_v6) += 1;
		if (pods[i].eni < n->n_enis)
			n->enis[pods[i].eni].pod_ips++;
	}
	n->pod_ips_in_use = (int) count;
	return 0;
}

/* ---- the picture ---- */

static void add_up(struct run *r, struct network *n, size_t v4, size_t v6)
{
	const struct memory *m = run_memory(r);
	int prefix4 = 0, prefix6 = 0;

	n->enis_attached = (int) n->n_enis;
	n->ips_assigned = n->n_enis > 0 ? 0 : -1;
	for (size_t i = 0; i < n->n_enis; i++) {
		int ips = n->enis[i].ips_assigned;

		n->ips_assigned = ips < 0 || n->ips_assigned < 0 ? -1 : n->ips_assigned + ips;
	}
	for (size_t i = 0; i < m->n; i++) {
		prefix4 += m->entries[i].n_prefix4;
		prefix6 += m->entries[i].n_prefix6;
	}
	n->ipv6 = v4 == 0 && prefix4 == 0 && (prefix6 > 0 || v6 > 0);
	n->prefix_mode = prefix4 > 0 || prefix6 > 0;
}

static int build(struct run *r, struct network *n, const struct net *net)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	_cleanup_(freep) struct kernel *k = calloc(1, sizeof(*k));
	size_t v4, v6;
	int e;

	if (!k)
		return -ENOMEM;
	k->net = net;
	n->n_enis = 0;
	collect_enis(r, n, k);
	sort_enis(n, k);
	k->primary = find_primary(n, k, run_node(r));
	find_managers(n, k);
	e = count_pods(n, k, &v4, &v6);
	if (e < 0)
		return e;
	add_up(r, n, v4, v6);
	n->known = true;
	n->enis_complete = m->listed && !m->more && !s->silent;
	for (size_t i = 0; i < m->n; i++)
		if ((m->entries[i].known & (FIXED | MOVING)) != (FIXED | MOVING))
			n->enis_complete = false;
	return 0;
}

static void observe_network(struct run *r, const struct net *net)
{
	const struct network *n = &run_node(r)->network;
	struct observation *o = run_observe(r, LAYER_ADDRESS, "", "", OUTCOME_OK, 0);
	int prefixes = 0, in_kernel = 0;

	for (size_t i = 0; i < n->n_enis; i++) {
		prefixes += n->enis[i].prefixes > 0 ? n->enis[i].prefixes : 0;
		in_kernel += n->enis[i].in_kernel;
	}
	observation_number(o, "enis", n->enis_attached);
	observation_number(o, "enis_in_kernel", in_kernel);
	observation_number(o, "ips_assigned", n->ips_assigned);
	observation_number(o, "prefixes", prefixes);
	observation_number(o, "pod_ips", n->pod_ips_in_use);
	observation_number(o, "ipv6", n->ipv6);
	observation_number(o, "complete", n->enis_complete);
	observation_number(o, "partial", net->partial);
	observation_detail(o, "%d ENI%s, %d pod address%s in use%s", n->enis_attached,
	                   n->enis_attached == 1 ? "" : "s", n->pod_ips_in_use,
	                   n->pod_ips_in_use == 1 ? "" : "es",
	                   ((const struct memory *) run_memory(r))->listed
	                           ? ""
	                           : ", by the kernel alone: metadata is silent");
}

/* An ENI without an IPv4 address is EFA-only and has no link by design. Attaching and detaching go
 * through this state, so that it has to last, unless there is only this one look. */
static void observe_missing(struct run *r, const struct net *net)
{
	struct memory *m = run_memory(r);

	for (size_t i = 0; i < m->n; i++) {
		struct entry *e = &m->entries[i];
		bool there = net_link_by_mac(net, e->mac) != NULL, ripe;
		bool efa_only = !(e->known & BIT(KEY_IPV4S)) || e->n_ipv4s == 0;
		const char *subject = e->eni_id[0] ? e->eni_id : e->mac;
		struct observation *o;

		if (there || efa_only) {
			if (e->missing_since)
				(void) run_observe(r, LAYER_ADDRESS, "link", subject, OUTCOME_OK,
				                   0);
			e->missing_since = 0;
			continue;
		}
		if (!e->missing_since)
			e->missing_since = run_now(r);
		ripe = run_once(r) || run_now(r) - e->missing_since >= HOT_PLUG;
		/* what metadata said long ago is not what it lists */
		ripe = ripe && !((const struct state *) run_state(r))->silent;
		o = run_observe(r, LAYER_ADDRESS, "link", subject,
		                ripe && !net->partial ? OUTCOME_ABSENT : OUTCOME_UNKNOWN, 0);
		observation_text(o, "mac", "%s", e->mac);
		observation_text(o, "eni_id", "%s", e->eni_id);
		observation_number(o, "device", e->device);
		observation_number(o, "card", e->card);
		observation_detail(o, "metadata lists %s, the kernel has no link for it", e->mac);
	}
}

/* ---- the third set: what ipamd has ---- */

static const struct ipamd_eni *known_to_ipamd(const struct node *n, const char *eni_id)
{
	for (size_t i = 0; i < n->ipamd.n; i++)
		if (strcmp(n->ipamd.enis[i].id, eni_id) == 0)
			return &n->ipamd.enis[i];
	return NULL;
}

/* Since when this has been so, from now on if it is new; NULL when there are too many. */
static struct oddness *note_oddness(struct run *r, const char *eni_id, enum oddity what)
{
	struct memory *m = run_memory(r);
	struct oddness *o = NULL;

	for (size_t i = 0; i < m->n_odd; i++)
		if (strcmp(m->odd[i].eni_id, eni_id) == 0)
			o = &m->odd[i];
	if (!o && m->n_odd < ENIS_MAX) {
		o = &m->odd[m->n_odd++];
		*o = (struct oddness){0};
		(void) text_format(o->eni_id, sizeof(o->eni_id), "%s", eni_id);
	}
	if (!o)
		return NULL;
	if (o->what != what)
		o->since = run_now(r);
	o->what = what;
	o->seen = true;
	return o;
}

static void forget_oddness(struct memory *m)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->n_odd; i++) {
		if (!m->odd[i].seen)
			continue;
		m->odd[kept] = m->odd[i];
		m->odd[kept++].seen = false;
	}
	m->n_odd = kept;
}

/* Set up by nobody, or by networkd alone. One that ipamd does not list either is a stranger's. */
static enum oddity oddity_of(const struct eni *e, const struct ipamd_eni *x)
{
	bool alone = e->managed_by == MANAGED_NOBODY || e->managed_by == MANAGED_NETWORKD;

	if (!e->in_kernel || !e->in_metadata || !e->ipv4.family || !e->eni_id[0] || !alone)
		return ODD_NONE;
	if (!x)
		return ODD_FOREIGN;
	return e->managed_by == MANAGED_NOBODY && !x->efa && !x->excluded ? ODD_UNCONFIGURED
	                                                                  : ODD_NONE;
}

static void observe_odd(struct run *r, const struct eni *e, const struct ipamd_eni *x,
                        enum oddity what)
{
	struct oddness *d = note_oddness(r, e->eni_id, what);
	usec_t wait = what == ODD_FOREIGN ? NOTICED : SETUP;
	struct observation *o;
	bool ripe;

	if (!d)
		return;
	/* a pod that was given one of its addresses has waited long enough */
	ripe = (x && x->assigned > 0) || (!run_once(r) && run_now(r) - d->since >= wait);
	o = run_observe(r, LAYER_ADDRESS, what == ODD_FOREIGN ? "foreign" : "setup", e->name,
	                ripe ? OUTCOME_FOREIGN : OUTCOME_UNKNOWN, 0);
	observation_text(o, "eni_id", "%s", e->eni_id);
	observation_text(o, "mac", "%s", e->mac);
	observation_number(o, "device", e->device);
	observation_number(o, "assigned", x ? x->assigned : 0);
	observation_detail(o, "%s: no table and no rule of the CNI, ipamd %s it", e->name,
	                   x ? "lists" : "does not list");
}

/* ipamd gave pods addresses of an ENI that is no longer there. */
static void observe_gone(struct run *r, const struct network *n)
{
	const struct ipamd_view *v = &run_node(r)->ipamd;

	for (size_t i = 0; i < v->n && n->enis_complete; i++) {
		const struct ipamd_eni *x = &v->enis[i];
		struct observation *o;
		struct oddness *d;
		bool there = false, ripe;

		for (size_t k = 0; k < n->n_enis; k++)
			there = there || strcmp(n->enis[k].eni_id, x->id) == 0;
		d = there || x->assigned == 0 ? NULL : note_oddness(r, x->id, ODD_GONE);
		if (!d)
			continue;
		/* what ipamd says must be younger than the loss */
		ripe = run_once(r) || v->at >= d->since + HOT_PLUG;
		o = run_observe(r, LAYER_ADDRESS, "gone", x->id,
		                ripe ? OUTCOME_ABSENT : OUTCOME_UNKNOWN, 0);
		observation_number(o, "assigned", x->assigned);
		observation_number(o, "device", x->device);
		observation_detail(o, "%d pods have addresses of %s, which is not attached",
		                   x->assigned, x->id);
	}
}

static void compare_with_ipamd(struct run *r, const struct network *n)
{
	const struct node *node = run_node(r);

	if (node->ipamd.at && run_now(r) - node->ipamd.at < FRESH && !node->ipamd.more) {
		for (size_t i = 0; i < n->n_enis; i++) {
			const struct eni *e = &n->enis[i];
			const struct ipamd_eni *x = known_to_ipamd(node, e->eni_id);
			enum oddity what = oddity_of(e, x);

			if (what != ODD_NONE)
				observe_odd(r, e, x, what);
		}
		observe_gone(r, n);
	}
	forget_oddness(run_memory(r));
}

static void finish(struct run *r)
{
	_cleanup_(freep) struct network *n = malloc(sizeof(*n));
	struct observation *o;
	const struct net *net = NULL;
	int e;

	/* What limits wrote stays; a failure on the way leaves the old picture whole. */
	e = n ? run_net(r, MAX_AGE, &net) : -ENOMEM;
	if (e == 0) {
		*n = run_node(r)->network;
		e = build(r, n, net);
	}
	if (e < 0) {
		o = run_observe(r, LAYER_ADDRESS, "", "", OUTCOME_UNKNOWN, -e);
		observation_detail(o, "cannot read the kernel's tables: %s", strerrordesc_np(-e));
		run_end(r);
		return;
	}
	run_learn(r)->network = *n;
	observe_network(r, net);
	observe_missing(r, net);
	if (!net->partial)
		compare_with_ipamd(r, &run_node(r)->network);
	run_end(r);
}

static void pump(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	char path[128];
	size_t i;
	enum key key;

	if (run_now(r) - s->begun > PATIENCE)
		s->stop = true;
	while (!s->stop && s->in_flight < IN_FLIGHT_MAX && next_question(m, s, &i, &key)) {
		s->asked[i] |= BIT(key);
		(void) text_format(path, sizeof(path), MACS "%s/%s", m->entries[i].mac,
		                   key_names[key]);
		if (!ask(r, path, i * KEY_MAX + (uintptr_t) key))
			break;
	}
	if (s->in_flight == 0)
		finish(r); /* r is gone */
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const struct net *net = NULL;
	int e;

	e = run_net(r, MAX_AGE, &net);
	if (e < 0)
		return e;
	s->begun = run_now(r);
	if (!run_node(r)->metadata_answers) {
		s->stop = s->silent = true; /* the imds probe waits for it; we need not */
	} else if (run_once(r) || is_list_due(r, m, net)) {
		/* alone: the answer renumbers the entries that other answers are for */
		if (ask(r, MACS, TAG_LIST))
			return 0;
	} else {
		want_refresh(r, m);
	}
	pump(r);
	return 0;
}

/* ---- what it means ---- */

static enum code judge_odd(const struct observation *o, struct words *ret)
{
	bool foreign = strcmp(o->aspect, "foreign") == 0;
	int assigned = (int) evidence_number(o, "assigned", 0);

	(void) text_format(
		ret->summary, sizeof(ret->summary),
		foreign ? "ENI %s (%s, device %d) is attached and not managed by the VPC CNI"
			: "ENI %s (%s, device %d) has no route table and no rule",
		evidence_get_text(o, "eni_id"), o->subject, (int) evidence_number(o, "device", -1));
	if (assigned > 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d pods use it",
		                   assigned);
	return foreign ? CODE_EniForeign : CODE_EniUnconfigured;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome == OUTCOME_FOREIGN &&
	    (strcmp(o->aspect, "foreign") == 0 || strcmp(o->aspect, "setup") == 0))
		return judge_odd(o, ret);
	if (o->outcome == OUTCOME_ABSENT && strcmp(o->aspect, "gone") == 0) {
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "%d pods have addresses of ENI %s, which is no longer attached",
		                   (int) evidence_number(o, "assigned", 0), o->subject);
		return CODE_EniGone;
	}
	if (o->outcome != OUTCOME_ABSENT || strcmp(o->aspect, "link") != 0)
		return CODE_NONE;
	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"metadata lists ENI %s (MAC %s, device %d), the kernel has no link for it",
		o->subject, evidence_get_text(o, "mac"), (int) evidence_number(o, "device", -1));
	return CODE_EniLinkMissing;
}

const struct probe probe_eni = {
	.name = "eni",
	.what = "which ENIs are attached, their addresses, and how many pods use",
	.layer = LAYER_ADDRESS,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 15 * USEC_PER_SEC,
	.after = "imds",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.on_net = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_EniLinkMissing, CODE_EniUnconfigured, CODE_EniGone, CODE_EniForeign},
};
