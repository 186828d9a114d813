-- Links that own reading the partition for a group (E26): group -> `epoch fence ends active`. The epoch holds while the link is active,
-- and until the lease ends if its connection was lost (EX11, EX16).
local reader_ownership = {}

-- Returns nil for a group whose lease is over, or that has none.
function reader_ownership.get(group)
  local line = redis.call('HGET', key.reader_owners, group)
  local epoch, fence, ends, active = string.match(line or '', '^(%d+) (%d+) (%d+) ([01])$')
  if not epoch or tonumber(ends) <= call.partition_now then return nil end
  return {epoch = epoch, fence = tonumber(fence), ends = tonumber(ends), active = active == '1'}
end

-- Returns the epoch that a link gets when it requests one, or none (empty); nil when it is refused (E28, EX13 to EX15). An equal epoch is
-- accepted only from Event Hubs clients.
function reader_ownership.grant_epoch(known, asked, equal)
  if asked == '' then return not (known and known.active) and int64.following(known and known.epoch or '0') or nil end
  if known and not (int64.after(asked, known.epoch) or (equal and asked == known.epoch)) then return nil end
  return asked
end

function reader_ownership.room(group)
  return group_room.has(key.reader_owners, group, reader_ownership.get)
end

function reader_ownership.put(group, known)
  redis.call('HSET', key.reader_owners, group,
    string.format('%s %d %d %d', known.epoch, known.fence, known.ends, known.active and 1 or 0))
end
