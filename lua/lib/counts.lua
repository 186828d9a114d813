-- Counts: how the bank learns what of a subscriber's credit the other partitions have. It begins one with each change of a
-- subscription, and to give back what was lost on the way between two of them.
-- NEEDS:
--- @include partition subscriptions shares
local counts = {}

-- The bank begins to count what the others have: until `settle` it lends nothing. Of a new subscription all counts as lent,
-- for locks of an earlier one may still stand anywhere. `total` nil and an empty `scope` leave theirs as they are.
function counts.begin(subscriber, total, new, scope)
  local share = shares.read(subscriber)
  share.total = total or share.total
  share.scope = scope ~= '' and scope or share.scope
  share.lent = new and share.total or share.lent
  partition.token = partition.token + 1
  share.born, share.counting = string.format('%d', partition.token), true
  subscriber.limit = math.min(subscriber.limit, math.max(0, share.total - share.lent))
  shares.write(subscriber, share)
  return share
end

-- The others have been counted, with what is held there beyond its credit. Gives what they have too much beside what is `held`
-- here; nil when another count has begun since.
function counts.settle(subscriber, born, lent, held)
  local share = shares.read(subscriber)
  if share.born ~= born or not share.counting then return nil end
  share.lent, share.counting = lent, false
  subscriber.limit = math.max(0, share.total - lent)
  subscriptions.put(subscriber)
  shares.write(subscriber, share)
  return math.max(0, lent + held - share.total)
end

-- A partition that is not the bank is counted: its part stays, and belongs to this count from now on.
function counts.join(subscriber, born)
  if tonumber(shares.read(subscriber).born) > tonumber(born) then return false end
  shares.write(subscriber, {born = born})
  return true
end
