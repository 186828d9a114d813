-- Which of a JID's subscriptions is meant (XEP-0060 §6.2.3, §6.3.4).
local chosen = {}

-- The one that is `named`, or else the only one; nil and the refusal if that is none of them, or there are more (P12).
function chosen.of(subid, named)
  local those = taken.of(subid)
  if #those == 0 then return nil, {'not-subscribed'} end
  if named == '' and #those > 1 then return nil, {'subid-required'} end
  for _, each in ipairs(those) do
    if named == '' or each == named then return each end
  end
  return nil, {'subid-invalid'}
end
