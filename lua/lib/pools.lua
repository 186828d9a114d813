-- Pools: one credit over all leaves below a collection. Its own partition is the coordinator; `meta` of a leaf's partition has in `pools`
-- an entry `pool count` for each pool that has so many subscribers there. A pool is `offset:collection@incarnation`: by the
-- offset a subscriber's name in the coordinator and its name in the leaf differ, so a direct subscription is another one.
-- NEEDS: meta
--- @include partition subscriptions
local pools = {PAST = 8}

-- Keeps the offset of a pool that has nobody here any more, of the last ones: who came through it is known by what it held.
local function remember(pool)
  local offset = string.match(pool, '^%d+')
  local kept = {offset}
  for each in string.gmatch(partition.past_pools or '', '%d+') do
    if each ~= offset and #kept < pools.PAST then kept[#kept + 1] = each end
  end
  partition.past_pools = table.concat(kept, ' ')
  redis.call('HSET', key.meta, 'past_pools', partition.past_pools)
end

-- The coordinator of a pool is elsewhere: here, one more or one less of its subscribers is seated.
function pools.seat(pool, by)
  local count, entries = by, {}
  for each, seated in string.gmatch(partition.pools or '', '(%S+) (%d+)') do
    if each == pool then count = count + seated else entries[#entries + 1] = each .. ' ' .. seated end
  end
  if count > 0 then entries[#entries + 1] = string.format('%s %d', pool, count) else remember(pool) end
  partition.pools = #entries > 0 and table.concat(entries, ' ')
  if partition.pools then
    redis.call('HSET', key.meta, 'pools', partition.pools)
  else
    redis.call('HDEL', key.meta, 'pools')
  end
end

-- The pool that a subscription is of: nil if it is a direct one, or has ended.
function pools.of(subid)
  local subscriber = partition.pools and subscriptions.get(subid)
  return subscriber and subscriber.pool or nil
end

-- What a notification says of its subscription: the pool that it is of and, where a JID may have several, its name.
function pools.told(subid)
  local pool = partition.pools and pools.of(subid)
  if partition.multi then return pool or '', subid end
  return pool or nil
end
