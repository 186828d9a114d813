-- Pools: one credit over all leaves below a collection. Its own partition is the coordinator; `meta` of a leaf's partition has in `pools`
-- an entry `pool count` for each pool that has so many subscribers there. A pool is `offset:collection@incarnation`: by the
-- offset a subscriber's name in the coordinator and its name in the leaf differ, so a direct subscription is another one.
local pools = {PAST = 8}

-- Keeps the offset of a pool that has nobody here any more, of the last ones: who came through it is known by what it held.
local function remember(pool)
  local offset = string.match(pool, '^%d+')
  local kept = {offset}
  for each in string.gmatch(call.partition_past_pools or '', '%d+') do
    if each ~= offset and #kept < pools.PAST then kept[#kept + 1] = each end
  end
  call.partition_past_pools = table.concat(kept, ' ')
  redis.call('HSET', key.meta, 'past_pools', call.partition_past_pools)
end

-- The coordinator of a pool is elsewhere: here, one more or one less of its subscribers is known.
function pools.count_subscriber(pool, by)
  local count, entries = by, {}
  for each, known in string.gmatch(call.partition_pools or '', '(%S+) (%d+)') do
    if each == pool then count = count + known else entries[#entries + 1] = each .. ' ' .. known end
  end
  if count > 0 then entries[#entries + 1] = string.format('%s %d', pool, count) else remember(pool) end
  call.partition_pools = #entries > 0 and table.concat(entries, ' ')
  if call.partition_pools then
    redis.call('HSET', key.meta, 'pools', call.partition_pools)
  else
    redis.call('HDEL', key.meta, 'pools')
  end
end

-- The pool that a subscription is of: nil if it is a direct one, or has ended.
function pools.of(subid)
  local subscriber = call.partition_pools and subscriptions.get(subid)
  return subscriber and subscriber.pool or nil
end

-- What a delivery says of its subscription: the pool that it is of, and after a blank its name where a JID may have several.
function pools.whose(pool, subid)
  if call.partition_multi then return (pool or '') .. ' ' .. subid end
  return pool or ''
end

-- What a notification says of its subscription: the pool that it is of and, where a JID may have several, its name.
function pools.describe(subid)
  local pool = call.partition_pools and pools.of(subid)
  if call.partition_multi then return pool or '', subid end
  return pool or nil
end
