-- Pools: one credit for all leaves below a collection. Its own partition is the coordinator. In a leaf's partition, `pools` in `meta` has
-- an entry `pool count` for each pool with so many subscribers there. A pool is `offset:collection@incarnation`: the offset makes a
-- subscriber's subid in the coordinator differ from that in the leaf, so that a direct subscription is another one.
local pools = {PAST = 8}

-- Remembers the offsets of the last pools without subscribers here: their former subscribers are found by their locks.
local function remember(pool)
  local offset = string.match(pool, '^%d+')
  local kept = {offset}
  for each in string.gmatch(call.partition_past_pools or '', '%d+') do
    if each ~= offset and #kept < pools.PAST then kept[#kept + 1] = each end
  end
  call.partition_past_pools = table.concat(kept, ' ')
  redis.call('HSET', key.meta, 'past_pools', call.partition_past_pools)
end

-- Counts a subscriber of a pool in or out here; the pool's coordinator is elsewhere.
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

-- Returns the pool of a subscription: nil for a direct one, or one that has ended.
function pools.of(subid)
  local subscriber = call.partition_pools and subscriptions.get(subid)
  return subscriber and subscriber.pool or nil
end

-- Returns the pool of a delivery's subscription and, where a JID may have several, its subid after a blank.
function pools.whose(pool, subid)
  if call.partition_multi then return (pool or '') .. ' ' .. subid end
  return pool or ''
end

-- Returns the pool of a notification's subscription and, where a JID may have several, its subid.
function pools.describe(subid)
  local pool = call.partition_pools and pools.of(subid)
  if call.partition_multi then return pool or '', subid end
  return pool or nil
end
