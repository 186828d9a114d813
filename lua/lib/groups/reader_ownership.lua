-- Links that own reading the partition for a group (E26): group -> `epoch fence ends active`. The epoch holds while the link is active,
-- and until the lease ends if its connection was lost (EX11, EX16).
local reader_ownership = {GROUPS = 1000}

-- Returns nil for a group whose lease is over, or that has none.
function reader_ownership.get(group)
  local line = redis.call('HGET', key.reader_owners, group)
  local epoch, fence, ends, active = string.match(line or '', '^(%d+) (%d+) (%d+) ([01])$')
  if not epoch or tonumber(ends) <= call.partition_now then return nil end
  return {epoch = epoch, fence = tonumber(fence), ends = tonumber(ends), active = active == '1'}
end

-- Returns the epoch that a link gets when it requests one, or none (empty); nil when it is refused (E28, EX13 to EX15). An equal epoch is
-- accepted only from Event Hubs clients.
function reader_ownership.granted(known, asked, equal)
  if asked == '' then return not (known and known.active) and int64.following(known and known.epoch or '0') or nil end
  if known and not (int64.after(asked, known.epoch) or (equal and asked == known.epoch)) then return nil end
  return asked
end

-- Whether one more group may have a record; removes those that are over if needed.
function reader_ownership.room(group)
  if redis.call('HEXISTS', key.reader_owners, group) == 1 then return true end
  if redis.call('HLEN', key.reader_owners) < reader_ownership.GROUPS then return true end
  local names = redis.call('HKEYS', key.reader_owners)
  call.budget_spent = call.budget_spent + #names / 10
  for _, name in ipairs(names) do
    if not reader_ownership.get(name) then redis.call('HDEL', key.reader_owners, name) end
  end
  return redis.call('HLEN', key.reader_owners) < reader_ownership.GROUPS
end

function reader_ownership.put(group, known)
  redis.call('HSET', key.reader_owners, group,
    string.format('%s %d %d %d', known.epoch, known.fence, known.ends, known.active and 1 or 0))
end
