-- Which subscriptions a JID may have in a partition, and which it has. `subids` are those of a sender's full JID and bare JID for direct
-- subscriptions.
local subscription_ids = {MOST = 32}

-- Returns all subids that one JID may have, given one of them, which is a direct one or, with `pool`, in that pool. They differ in the
-- last five bits, and the first is made from the JID. Unless the partition has had a second subscription of a JID, that is the only one.
function subscription_ids.family(subid, pool)
  if not call.partition_multi then return {subid} end
  local offset, found = tonumber(string.match(pool or '', '^%d+') or 0), {}
  local name = (tonumber(subid) - offset) % 2 ^ 52
  local bits = name % subscription_ids.MOST
  for i = 0, subscription_ids.MOST - 1 do
    local each = name - bits + (bits + i) % subscription_ids.MOST
    found[i + 1] = string.format('%.0f', (each + offset) % 2 ^ 52)
  end
  return found
end

-- Returns the offset of each pool that has or had subscribers here: it is added to the subid of a direct subscription.
local function offsets()
  local found, present = {}, {}
  for offset in string.gmatch(call.partition_pools or '', '(%d+):%S+ %d+') do
    found[#found + 1], present[offset] = tonumber(offset), true
  end
  for offset in string.gmatch(call.partition_past_pools or '', '%d+') do
    if not present[offset] then found[#found + 1] = tonumber(offset) end
  end
  return found
end

-- Returns the part that all subids of one JID share.
local function shared_part(name)
  return call.partition_multi and math.floor(name / subscription_ids.MOST) or name
end

-- Whether a subscription has one of a sender's subids. There may be thousands, so this compares what they share instead of making them.
function subscription_ids.covers(subids, subid)
  local wanted = {}
  for each in string.gmatch(subids, '%d+') do wanted[shared_part(tonumber(each))] = true end
  if wanted[shared_part(tonumber(subid))] then return true end
  for _, offset in ipairs(offsets()) do
    if wanted[shared_part((tonumber(subid) - offset) % 2 ^ 52)] then return true end
  end
  return false
end

-- Returns all subids that these JIDs may have, directly and through each pool (see `pools`).
function subscription_ids.all(subids)
  local found = {}
  for subid in string.gmatch(subids, '%d+') do
    if found[1] ~= subid then
      for _, each in ipairs(subscription_ids.family(subid)) do found[#found + 1] = each end
    end
  end
  -- The caller looks for each of them.
  call.budget_spent = call.budget_spent + #found / 8
  local direct = #found
  for _, offset in ipairs(offsets()) do
    call.budget_spent = call.budget_spent + direct / 8
    for i = 1, direct do
      found[#found + 1] = string.format('%.0f', (tonumber(found[i]) + offset) % 2 ^ 52)
    end
  end
  return found
end

-- Splits the subids that a JID may have into those in use and those that are free.
function subscription_ids.existing(subid)
  local family, those, free = subscription_ids.family(subid), {}, {}
  local lines = redis.call('HMGET', key.subscribers, unpack(family))
  for i, each in ipairs(family) do
    local among = lines[i] and those or free
    among[#among + 1] = each
  end
  return those, free
end

-- Returns the subid `named`, or else the only one; nil and the refusal if `named` is none of them, or there are several (P12).
function subscription_ids.choose(subid, named)
  local those = subscription_ids.existing(subid)
  if #those == 0 then return nil, {'not-subscribed'} end
  if named == '' and #those > 1 then return nil, {'subid-required'} end
  for _, each in ipairs(those) do
    if named == '' or each == named then return each end
  end
  return nil, {'subid-invalid'}
end
