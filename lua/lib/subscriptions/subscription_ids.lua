-- Which subscriptions a JID may have in a partition, and which it has. `subids` are those of a sender's full JID and bare JID for direct
-- subscriptions.
local subscription_ids = {MOST = 32, COLLECTED = 2 ^ 51}

-- Returns all subids that one JID may have, given one of them. They differ in the last five bits, and the first is made from the JID.
-- Unless the partition has had a second subscription of a JID, that is the only one.
function subscription_ids.family(subid)
  if not call.partition_multi then return {subid} end
  local name, found = tonumber(subid), {}
  local bits = name % subscription_ids.MOST
  for i = 0, subscription_ids.MOST - 1 do found[i + 1] = string.format('%.0f', name - bits + (bits + i) % subscription_ids.MOST) end
  return found
end

-- Returns the subid under which a queue has the locks of a collection's subscriber, or turns it back.
local function collected(subid)
  return string.format('%.0f', (tonumber(subid) + subscription_ids.COLLECTED) % (2 * subscription_ids.COLLECTED))
end

-- Returns the part that all subids of one JID share.
local function shared_part(subid)
  return call.partition_multi and math.floor(tonumber(subid) / subscription_ids.MOST) or tonumber(subid)
end

-- Whether a subscription has one of a sender's subids, in the queue or through a collection.
function subscription_ids.covers(subids, subid)
  local wanted = {}
  for each in string.gmatch(subids, '%d+') do wanted[shared_part(each)] = true end
  return wanted[shared_part(subid)] or call.partition_before.referenced and wanted[shared_part(collected(subid))] or false
end

-- Returns all subids that these JIDs may have, in the queue and through collections.
function subscription_ids.all(subids)
  local found = {}
  for subid in string.gmatch(subids, '%d+') do
    if found[1] ~= subid then
      for _, each in ipairs(subscription_ids.family(subid)) do found[#found + 1] = each end
    end
  end
  -- The caller looks for each of them.
  call.budget_spent = call.budget_spent + #found / 8
  for i = 1, call.partition_before.referenced and #found or 0 do found[#found + 1] = collected(found[i]) end
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
