-- Fair order, for nodes that ask for it: dispatch takes turns over tenants, which are the group keys or the publishers of items.
-- `fair_items` has members of tenant, rank and position, which sort as a tenant's items go out; a zero byte ends the tenant's name.
-- `fair_tenants` has each tenant with waiting items: the lowest score is next. A turn moves the tenant on by one divided by its weight
-- (`fair_weights`), counted from the score whose turn it was, and so does its first item. So nobody lags behind or runs ahead for longer
-- than a turn of the others, and nothing is remembered of tenants without waiting items. `fair_at` in `meta` has the score of the last
-- turn. An item that is here is also in `ready`, under a negative score.
-- CALL: joined
-- `joined` has tenants that are in `fair_tenants`.
local fair_order = {HERE = -2 ^ 52, COST = 0.5}

local function range(tenant, count)
  return redis.call('ZRANGE', key.fair_items, '[' .. tenant .. '\0', '(' .. tenant .. '\1', 'BYLEX', 'LIMIT', 0, count)
end

local function member(tenant, position, entry)
  return tenant .. '\0' .. (scheduling.of(entry).rank or scheduling.USUAL) .. positions.pad(position)
end

-- Returns the score of a tenant's next turn.
local function following(tenant)
  local weight = call.partition_options.weighted and redis.call('HGET', key.fair_weights, tenant) or 1
  return string.format('%.17g', (call.partition_before.fair_at or 0) + 1 / weight)
end

-- Gives an item its place; `entry` is its first version.
function fair_order.add(position, entry)
  local tenant = call.partition_options.fair == 'publisher' and entry.by or entry.key
  budget.spend(fair_order.COST)
  call.fair_order_joined = call.fair_order_joined or {}
  if not call.fair_order_joined[tenant] then
    redis.call('ZADD', key.fair_tenants, 'NX', following(tenant), tenant)
    call.fair_order_joined[tenant] = true
  end
  write_buffer.add('ZADD', key.fair_items, 0, member(tenant, position, entry))
  write_buffer.add('ZADD', key.ready, positions.place(position) + fair_order.HERE, position)
end

-- Takes the positions of up to `count` items, of one tenant after another.
function fair_order.take(count)
  local out, meta = {}, call.partition_before
  while #out < count and not budget.exhausted() do
    local tenant, at = unpack(redis.call('ZRANGE', key.fair_tenants, 0, 0, 'WITHSCORES'))
    if not tenant then break end
    local found = range(tenant, 2)
    meta.fair_at = at
    if found[1] then redis.call('ZREM', key.fair_items, found[1]) end
    if found[2] then
      redis.call('ZADD', key.fair_tenants, following(tenant), tenant)
    else
      redis.call('ZREM', key.fair_tenants, tenant)
      if call.fair_order_joined then call.fair_order_joined[tenant] = nil end
    end
    local position = found[1] and scheduling.unpad(found[1])
    if position and redis.call('ZREM', key.ready, position) == 1 then out[#out + 1] = position end
    budget.spend(fair_order.COST)
  end
  if #out > 0 then
    redis.call('HSET', key.meta, 'fair_at', meta.fair_at)
  elseif not meta.fair and redis.call('EXISTS', key.fair_tenants) == 0 then
    -- The option was unset, and all items that had a place here have gone out.
    redis.call('HDEL', key.meta, 'fair_at')
    meta.fair_at = nil
  end
  return out
end

-- Removes an item that leaves before its turn, if it is here; the caller removes it from `ready`.
function fair_order.remove(position, entry)
  local place = redis.call('ZSCORE', key.ready, position)
  if not place or tonumber(place) >= 0 then return end
  local first = entry.log_id ~= position and log_entries.get(position) or entry
  -- The option may have had the other value when the item came here.
  for _, tenant in ipairs({first.key, first.by}) do
    if redis.call('ZREM', key.fair_items, member(tenant, position, first)) == 1 and not range(tenant, 1)[1] then
      redis.call('ZREM', key.fair_tenants, tenant)
      if call.fair_order_joined then call.fair_order_joined[tenant] = nil end
    end
  end
end

-- Returns the positions of the next items, the first of each tenant, up to `count`.
function fair_order.first(count)
  local out = {}
  for i, tenant in ipairs(redis.call('ZRANGE', key.fair_tenants, 0, count - 1)) do
    local found = range(tenant, 1)[1]
    out[i] = found and scheduling.unpad(found) or ''
  end
  return out
end
