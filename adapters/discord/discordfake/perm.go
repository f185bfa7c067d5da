package discordfake

import "strconv"

// Permission bits that the server knows (docs: "Permissions").
const (
	PermAdministrator        uint64 = 1 << 3
	PermManageChannels       uint64 = 1 << 4
	PermAddReactions         uint64 = 1 << 6
	PermViewChannel          uint64 = 1 << 10
	PermSendMessages         uint64 = 1 << 11
	PermManageMessages       uint64 = 1 << 13
	PermEmbedLinks           uint64 = 1 << 14
	PermAttachFiles          uint64 = 1 << 15
	PermReadMessageHistory   uint64 = 1 << 16
	PermMentionEveryone      uint64 = 1 << 17
	PermUseCommands          uint64 = 1 << 31
	PermManageThreads        uint64 = 1 << 34
	PermCreatePublicThreads  uint64 = 1 << 35
	PermCreatePrivateThreads uint64 = 1 << 36
	PermSendInThreads        uint64 = 1 << 38

	// PermEveryone is what @everyone has in a guild that says nothing else: about what a new guild gives.
	PermEveryone = PermAddReactions | PermViewChannel | PermSendMessages | PermEmbedLinks | PermAttachFiles |
		PermReadMessageHistory | PermUseCommands | PermCreatePublicThreads | PermCreatePrivateThreads | PermSendInThreads
	// PermBot is what the bot's own role has in a guild that says nothing else: what a bot with approvals asks for.
	PermBot = PermAddReactions | PermViewChannel | PermSendMessages | PermEmbedLinks | PermAttachFiles | PermReadMessageHistory |
		PermCreatePublicThreads | PermSendInThreads

	permAll uint64 = 1<<53 - 1
	// permDM is what everybody has in a direct message. That app_permissions there include ATTACH_FILES, EMBED_LINKS and
	// MENTION_EVERYONE is docs ("Receiving and Responding"); the rest is what can be done there.
	permDM = PermViewChannel | PermSendMessages | PermEmbedLinks | PermAttachFiles | PermReadMessageHistory | PermMentionEveryone |
		PermAddReactions | PermUseCommands | 1<<18
)

func permText(p uint64) string { return strconv.FormatUint(p, 10) }

// basePerms is what a member has in the guild, before channels (docs: "Permissions", permission hierarchy).
func (g *guild) basePerms(user string) uint64 {
	if g.owner == user {
		return permAll
	}
	m := g.members[user]
	if m == nil {
		return 0
	}
	p := g.role(g.id).Permissions
	for _, r := range m.roles {
		if role := g.role(r); role != nil {
			p |= role.Permissions
		}
	}
	if p&PermAdministrator != 0 {
		return permAll
	}
	return p
}

// perms is what a user may do in a channel: base permissions, then the overwrites for everyone, for roles together, and for the
// member, in this order (docs: "Permissions"). A thread has those of its parent. A private thread is seen by its members and those
// who manage threads. The caller holds mu.
func (s *Server) perms(c *channel, user string) uint64 {
	if c.Type == TypeDM {
		if user == s.cfg.BotID || c.Recipient == user {
			return permDM
		}
		return 0
	}
	g := s.guilds[c.Guild]
	if g == nil {
		return 0
	}
	if c.thread != nil {
		parent := s.channels[c.Parent]
		if parent == nil {
			return 0
		}
		p := s.perms(parent, user)
		if _, in := c.thread.members[user]; c.Type == TypePrivateThread && !in && p&PermManageThreads == 0 {
			return 0
		}
		return p
	}
	p := g.basePerms(user)
	if p == permAll || p == 0 {
		return p
	}
	var deny, allow uint64
	for _, o := range c.Overwrites {
		if o.Role == g.id {
			p = p&^o.Deny | o.Allow
		} else if o.Role != "" && g.hasRole(user, o.Role) {
			deny, allow = deny|o.Deny, allow|o.Allow
		}
	}
	// After the one for everyone, wherever that stands in the list: all denials of roles together, then all that they allow.
	p = p&^deny | allow
	for _, o := range c.Overwrites {
		if o.User != "" && o.User == user {
			p = p&^o.Deny | o.Allow
		}
	}
	if p&PermViewChannel == 0 {
		return 0 // docs: who cannot see a channel can do nothing in it.
	}
	return p
}

func (s *Server) can(c *channel, user string, all uint64) bool { return s.perms(c, user)&all == all }
